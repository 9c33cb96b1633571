"""Split Arrow arrays into the columns of a file: the inverse of :mod:`trilake.trevni.nesting.assemble`.

A tree of shredders mirrors the schema.  Each one gets the slots of its field for some rows, writes its columns, and
passes the rest to its children.  The presence column of a field is created at its first null, with a length of 1 for
each earlier slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.arrow_types import elements_of
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.nesting.arrow_forms import bare, check_form
from trilake.trevni.nesting.arrow_types import filled, to_values, value_type
from trilake.trevni.nesting.assemble import Node, element_field
from trilake.trevni.nesting.columns import PhysicalColumn, SchemaColumns

Int64s = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Rows:
    """Rows of slots: ``slots`` has the first slot of each row and the end; ``None`` means one slot per row."""

    count: int
    slots: Int64s | None = None

    def through(self, slot_values: Int64s) -> Rows:
        """Return the same rows in terms of the values of their slots."""
        return Rows(self.count, slot_values if self.slots is None else slot_values[self.slots])


class Shredder(ABC):
    """Writes one field."""

    def __init__(self, field: pa.Field, path: str, parent: PhysicalColumn | None, make: SchemaColumns) -> None:
        self.field, self._path, self._parent, self._make = field, path, parent, make
        self._number = make.next_field()
        self._type = bare(field.type)
        self._presence: PhysicalColumn | None = None
        # Rows and slots written so far.
        self._rows = self._slots = 0

    def add(self, array: pa.Array, rows: Rows) -> None:
        """Write the slots of more rows, given as a plain array."""
        slots = len(array)
        if array.null_count and not pa.types.is_null(self._type) and self._presence is None:
            if any(column.encoder.values for column in self.columns()):
                message = f"column {self._path!r} cannot have nulls with the option values"
                raise InvalidArgumentError(message, column=self._path)
            self._presence = self._make(f"{self._path}?", ValueType.NULL, True, self._parent, self._number)
            self._presence.encoder.prefill(self._rows, self._slots)
            self._adopt(self._presence)
        if self._presence is not None:
            values = _valid_before(array)
            self._presence.encoder.add(rows.count, rows.slots, values)
            array, rows = array.drop_null(), rows.through(values)
        self._add(array, rows)
        self._rows += rows.count
        self._slots += slots

    @abstractmethod
    def _adopt(self, parent: PhysicalColumn) -> None:
        """Set the parent column."""

    @abstractmethod
    def _add(self, array: pa.Array, rows: Rows) -> None:
        """Write slots without nulls."""

    @abstractmethod
    def _columns(self) -> Iterator[PhysicalColumn]: ...

    def columns(self) -> Iterator[PhysicalColumn]:
        """Yield the columns of this field in file order."""
        if self._presence is not None:
            yield self._presence
        yield from self._columns()


class LeafShredder(Shredder):
    """Writes a field of a type without children."""

    def __init__(self, field: pa.Field, path: str, parent: PhysicalColumn | None, make: SchemaColumns) -> None:
        super().__init__(field, path, parent, make)
        type_ = value_type(self._type)
        assert type_ is not None
        self._column = make(path, type_, False, parent)

    def _adopt(self, parent: PhysicalColumn) -> None:
        self._column.parent = parent

    def _add(self, array: pa.Array, rows: Rows) -> None:
        values = to_values(array)
        if self._column.encoder.values:
            self._column.watch(values)
        self._column.encoder.add(rows.count, rows.slots, None, values)

    def _columns(self) -> Iterator[PhysicalColumn]:
        yield self._column


class StructShredder(Shredder):
    """Writes the fields of a struct, with names after a dot, or for union branches after a slash as in Avro.

    With ``short``, the fields of list elements get short names if these are free, as in the specification.
    """

    def __init__(
        self, field: pa.Field, path: str, parent: PhysicalColumn | None, make: SchemaColumns, short: bool = False
    ) -> None:
        super().__init__(field, path, parent, make)
        self.inner: list[Shredder] = []
        union = pa.types.is_union(field.type)
        for i in range(self._type.num_fields):
            inner = self._type.field(i)
            name = f"{path}{'/' if union else '.'}{inner.name}"
            if short and not union and inner.name and make.free(inner.name):
                name = inner.name
            self.inner.append(shredder(inner, name, parent, make))

    def _adopt(self, parent: PhysicalColumn) -> None:
        for inner in self.inner:
            # With a presence column, only that column changes its parent.
            if inner._presence is not None:
                inner._presence.parent = parent
            else:
                inner._adopt(parent)
            inner._parent = parent

    def _add(self, array: pa.Array, rows: Rows) -> None:
        for i, inner in enumerate(self.inner):
            # The array has no nulls; .flatten() would add validity bitmaps to unions.
            inner.add(array.field(i), rows)

    def _columns(self) -> Iterator[PhysicalColumn]:
        for inner in self.inner:
            yield from inner.columns()


class ListShredder(Shredder):
    """Writes a list of any kind, or a map."""

    def __init__(self, field: pa.Field, path: str, parent: PhysicalColumn | None, make: SchemaColumns) -> None:
        super().__init__(field, path, parent, make)
        self._element = element_field(self._type)
        element = bare(self._element.type)
        self._leaf = value_type(element)
        self._column = make(path, self._leaf or ValueType.NULL, True, parent)
        # Presence column of the elements.
        self._mask: PhysicalColumn | None = None
        self._elements = 0
        self._inner: Shredder | None = None
        if self._leaf is not None:
            self._element_number = make.next_field()
        elif pa.types.is_struct(element):
            short = not pa.types.is_map(self._type)
            self._inner = StructShredder(self._element, path, self._column, make, short)
        else:
            self._inner = shredder(self._element, f"{path}.{self._element.name}", self._column, make)

    def _adopt(self, parent: PhysicalColumn) -> None:
        self._column.parent = parent

    def _add(self, array: pa.Array, rows: Rows) -> None:
        elements, offsets = elements_of(array)
        if self._inner is not None:
            self._column.encoder.add(rows.count, rows.slots, offsets)
            self._inner.add(elements, rows.through(offsets))
        else:
            if elements.null_count and self._leaf is not ValueType.NULL and self._mask is None:
                self._mask = self._make(f"{self._path}?", ValueType.NULL, True, self._column, self._element_number)
                self._mask.encoder.prefill(self._rows, self._elements)
            valid = _valid_before(elements)
            if elements.null_count and self._leaf is not ValueType.NULL:
                elements = filled(elements)
            self._column.encoder.add(rows.count, rows.slots, offsets, to_values(elements))
            if self._mask is not None:
                self._mask.encoder.add(rows.count, rows.through(offsets).slots, valid)
        self._elements += len(elements)

    def _columns(self) -> Iterator[PhysicalColumn]:
        yield self._column
        if self._mask is not None:
            yield self._mask
        if self._inner is not None:
            yield from self._inner.columns()


class PlainShredder:
    """Writes a field without nulls to existing columns; see :func:`trilake.trevni.nesting.assemble.plain_nodes`."""

    def __init__(self, node: Node, columns: Sequence[PhysicalColumn], with_values: bool = False) -> None:
        self.field, self._node = node.field, node
        self._column = None if node.column is None else columns[node.column]
        # The first field has the values of the parent, which the list around the struct writes.
        nodes = node.nodes[1:] if node.kind == "struct" and with_values else node.nodes
        self._inner: list[PlainShredder] = []
        if node.kind == "list" and node.nodes[0].kind == "struct":
            struct = node.nodes[0]
            self._inner = [PlainShredder(struct, columns, with_values=struct.nodes[0].column == node.column)]
        elif node.kind == "struct":
            self._inner = [PlainShredder(inner, columns) for inner in nodes]

    def add(self, array: pa.Array, rows: Rows) -> None:
        """Write the slots of more rows, given as a plain array."""
        _check_nulls(array, self.field)
        if self._node.kind == "struct":
            parts = array.flatten()
            for inner, values in zip(self._inner, parts[len(parts) - len(self._inner) :], strict=True):
                inner.add(values, rows)
            return
        assert self._column is not None
        encoder = self._column.encoder
        if self._node.kind == "leaf":
            if encoder.values:
                self._column.watch(array)
            encoder.add(rows.count, rows.slots, None, array)
            return
        elements, offsets = elements_of(array)
        if not self._inner:
            _check_nulls(elements, self.field)
            encoder.add(rows.count, rows.slots, offsets, elements)
            return
        first = self._node.nodes[0].nodes[0]
        values = None
        if first.kind == "leaf" and first.column == self._node.column:
            values = elements.flatten()[0]
            _check_nulls(values, self.field)
        encoder.add(rows.count, rows.slots, offsets, values)
        self._inner[0].add(elements, rows.through(offsets))


def _valid_before(array: pa.Array) -> Int64s:
    """Return the number of valid values before each one, then their total."""
    valid = np.asarray(array.is_valid().cast(pa.int8())) if len(array) else np.empty(0, np.int8)
    return np.concatenate(([0], np.cumsum(valid, dtype=np.int64)))


def _check_nulls(values: pa.Array, field: pa.Field) -> None:
    if values.null_count and not pa.types.is_null(values.type):
        raise InvalidArgumentError("the field has nulls, which its columns cannot store", column=field.name)


def shredder(field: pa.Field, path: str, parent: PhysicalColumn | None, make: SchemaColumns) -> Shredder:
    """Create the shredder of a field.  Raises ``InvalidArgumentError`` for types that cannot be stored."""
    if parent is None:
        check_form(field)
    type_ = bare(field.type)
    if pa.types.is_struct(type_):
        return StructShredder(field, path, parent, make)
    kind = LeafShredder if value_type(type_) is not None else ListShredder
    return kind(field, path, parent, make)


def checked_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the schema without loss.  Raises ``SchemaMismatchError``."""
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise SchemaMismatchError(f"expected the columns {schema.names}, got a batch with {batch.schema.names}")
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise SchemaMismatchError(f"a batch does not have the file's schema: {e}") from e
