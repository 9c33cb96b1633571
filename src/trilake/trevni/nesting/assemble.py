"""Assemble nested columns: convert lengths and values to Arrow arrays (spec: "Column Metadata").

A :class:`Node` is an Arrow field with its columns:

* ``leaf``: a column of values;
* ``list``: an array column, and the node of its elements: the values of the column, its children, or both;
* ``struct``: the nodes of its fields, without a column;
* ``optional``: a null array column of lengths 0 and 1, whose child has only the values that are not null;
* ``masked``: for elements of lists, such a column next to a column that has placeholders for nulls.

The metadata :data:`SCHEMA` of a file is the Arrow schema of its columns.  Without it, :func:`plain_nodes` defines their
meaning: a column is a field, an array column is a list, and a parent is a list of structs of its children; if the
parent has a type, its values are the first field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import CorruptFileError
from trilake.trevni.blocks.codecs import BlockLocation
from trilake.trevni.blocks.decode import Budget, Int32s, Slots
from trilake.trevni.blocks.layout import ColumnDescriptor, Header, ValueType
from trilake.trevni.nesting.arrow_forms import bare, plain_type
from trilake.trevni.nesting.arrow_types import from_values, value_type

Indices = np.ndarray[Any, np.dtype[np.int64]]

#: Key of file metadata: the Arrow schema of the rows as an IPC message, unless it is that of :func:`plain_nodes`.
SCHEMA = "arrow.schema"
#: Key of column metadata: this null array column says which values of the field with this number are not null.  Fields
#: are numbered depth first, including elements of lists and entries of maps.
PRESENCE = "arrow.presence"


@dataclass(frozen=True)
class Node:
    """A field with its columns; see the module docstring."""

    kind: str
    field: pa.Field
    column: int | None
    nodes: tuple[Node, ...] = ()

    def columns(self) -> list[int]:
        """Return the numbers of all columns of this node."""
        below = {c for node in self.nodes for c in node.columns()}
        return sorted(below if self.column is None else below | {self.column})


# --- fields without a schema -----------------------------------------------------------------------------------------


def plain_nodes(header: Header) -> list[Node]:
    """Return the nodes of the top-level columns, ignoring :data:`SCHEMA`."""
    return [_plain_node(c.number, header) for c in header.columns if c.parent is None]


def _plain_node(number: int, header: Header) -> Node:
    column = header.columns[number]
    if not column.array:
        return Node("leaf", pa.field(column.label, column.type.arrow), number)
    inner = [_plain_node(child, header) for child in header.children[number]]
    if not inner:
        element = Node("leaf", pa.list_(column.type.arrow).value_field, number)
    else:
        if column.type is not ValueType.NULL:
            name, names = "value", {node.field.name for node in inner}
            while name in names:
                name += "_"
            inner.insert(0, Node("leaf", pa.field(name, column.type.arrow), number))
        struct = pa.struct([node.field for node in inner])
        element = Node("struct", pa.list_(struct).value_field, None, tuple(inner))
    return Node("list", pa.field(column.label, pa.list_(element.field)), number, (element,))


# --- fields of a schema ----------------------------------------------------------------------------------------------


class _Mismatch(Exception):
    """The columns do not match the schema."""


def schema_nodes(schema: pa.Schema, header: Header, file: str) -> list[Node]:
    """Return the nodes of a schema's fields, matched to the columns in order.  Raises ``CorruptFileError``."""
    walk = _SchemaMatcher(header.columns)
    try:
        nodes = [walk.node(field, None) for field in schema]
        if walk.next != len(header.columns):
            raise _Mismatch(f"column {header.columns[walk.next].label!r} has no field")
    except _Mismatch as e:
        raise CorruptFileError(f"the Arrow schema in the file does not match its columns: {e}", file=file) from None
    return nodes


class _SchemaMatcher:
    def __init__(self, columns: Sequence[ColumnDescriptor]) -> None:
        self._columns = columns
        self.next = 0
        self._fields = 0

    def _take(self, field: pa.Field, parent: int | None) -> ColumnDescriptor:
        if self.next >= len(self._columns):
            raise _Mismatch(f"field {field.name!r} has no column")
        column = self._columns[self.next]
        if column.parent != parent:
            raise _Mismatch(f"column {column.label!r} and field {field.name!r} have different parents")
        self.next += 1
        return column

    def _is_presence(self, parent: int | None, number: int) -> bool:
        """Whether the next column is the presence column of a field."""
        column = self._columns[self.next] if self.next < len(self._columns) else None
        return (
            column is not None
            and column.metadata.get(PRESENCE) == b"%d" % number
            and (column.array, column.type, column.parent) == (True, ValueType.NULL, parent)
        )

    def _number(self) -> int:
        self._fields += 1
        return self._fields - 1

    def node(self, field: pa.Field, parent: int | None) -> Node:
        if self._is_presence(parent, self._number()):
            column = self._take(field, parent)
            return Node("optional", field, column.number, (self._inner(field, column.number),))
        return self._inner(field, parent)

    def _inner(self, field: pa.Field, parent: int | None) -> Node:
        type_ = bare(field.type)
        if pa.types.is_struct(type_):
            fields = [type_.field(i) for i in range(type_.num_fields)]
            return Node("struct", field, None, tuple(self.node(f, parent) for f in fields))
        leaf = value_type(type_)
        if leaf is not None:
            column = self._take(field, parent)
            if column.array or column.type.arrow != leaf.arrow:
                raise _Mismatch(f"column {column.label!r} does not match field {field.name!r} of type {field.type}")
            return Node("leaf", field, column.number)
        column = self._take(field, parent)
        if not column.array:
            raise _Mismatch(f"column {column.label!r} is not an array, but field {field.name!r} is {field.type}")
        return Node("list", field, column.number, (self._element(element_field(type_), column),))

    def _element(self, field: pa.Field, column: ColumnDescriptor) -> Node:
        leaf = value_type(bare(field.type))
        if leaf is None:
            return self.node(field, column.number)
        if column.type.arrow != leaf.arrow:
            raise _Mismatch(f"column {column.label!r} is {column.type.value}, but its elements are {field.type}")
        values = Node("leaf", field, column.number)
        if self._is_presence(column.number, self._number()):
            return Node("masked", field, self._take(field, column.number).number, (values,))
        return values


def element_field(type_: pa.DataType) -> pa.Field:
    """Return the field of a list's elements, or of a map's entries."""
    if pa.types.is_map(type_):
        entries = pa.struct([type_.key_field, type_.item_field])
        return pa.field("entries", entries, nullable=False)
    return type_.value_field


# --- to Arrow --------------------------------------------------------------------------------------------------------


class Assembler:
    """Builds Arrow arrays from the lengths and values of columns; ``file`` is for errors."""

    def __init__(
        self, cuts: Mapping[int, Slots], columns: Sequence[ColumnDescriptor], file: str, budget: Budget
    ) -> None:
        self._cuts, self._columns, self._file, self._budget = cuts, columns, file, budget

    def _fail(self, column: int | None, message: str) -> CorruptFileError:
        label = None if column is None else self._columns[column].label
        return CorruptFileError(message, file=self._file, column=label)

    def array(self, node: Node, slots: int, indices: Indices | None = None) -> pa.Array:
        """Build an array from the ``slots`` values of a node, in the plain form of its field's type.

        ``indices`` has the index of a value for each element, or -1 for null; by default all values in order.
        """
        try:
            return self._plain(node, slots, indices)
        except (pa.ArrowException, ValueError, OverflowError) as e:
            raise self._fail(node.column, f"values do not match the type {node.field.type}: {e}") from e

    def _plain(self, node: Node, slots: int, indices: Indices | None) -> pa.Array:
        type_ = plain_type(node.field.type)
        match node.kind:
            case "leaf":
                assert node.column is not None
                values = self._cuts[node.column].values
                if len(values) != slots:
                    message = f"the column has {len(values)} values, but its parent has {slots} elements"
                    raise self._fail(node.column, message)
                values = from_values(values, type_)
                return values if indices is None else values.take(pa.array(indices, mask=indices < 0))
            case "struct":
                return self._struct(node, type_, slots, indices)
            case "optional":
                there = self._lengths(node, slots)
                inside = np.where(there == 0, -1, np.cumsum(there, dtype=np.int64) - 1)
                return self._plain(node.nodes[0], int(there.sum()), _through(indices, inside))
            case "masked":
                there = self._lengths(node, slots)
                return self._plain(node.nodes[0], slots, _through(indices, np.where(there == 0, -1, np.arange(slots))))
            case _:
                return self._list(node, type_, slots, indices)

    def _lengths(self, node: Node, slots: int) -> Int32s:
        assert node.column is not None
        lengths = self._cuts[node.column].lengths
        assert lengths is not None
        if len(lengths) != slots:
            raise self._fail(node.column, f"the column has {len(lengths)} lengths for {slots} slots")
        if node.kind != "list" and lengths.size and lengths.max() > 1:
            raise self._fail(node.column, f"expected lengths of 0 and 1, got {lengths.max()}")
        return lengths

    def _struct(self, node: Node, type_: pa.DataType, slots: int, indices: Indices | None) -> pa.Array:
        count = slots if indices is None else len(indices)
        mask = None if indices is None else pa.array(indices < 0)
        if not node.nodes:
            bits = None if mask is None else pc.invert(mask).buffers()[1]
            return pa.Array.from_buffers(type_, count, [bits])
        arrays = [self.array(inner, slots, indices) for inner in node.nodes]
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def _list(self, node: Node, type_: pa.DataType, slots: int, indices: Indices | None) -> pa.Array:
        lengths = self._lengths(node, slots)
        total = int(lengths.sum(dtype=np.int64))
        wide = pa.types.is_large_list(type_)
        if total > 0x7FFFFFFF and not wide:
            raise self._fail(node.column, f"{total} elements are too many for one {type_}; read fewer rows at a time")
        mask = None if indices is None else pa.array(indices < 0)
        if pa.types.is_fixed_size_list(type_):
            return self._fixed_list(node, type_, lengths, indices, mask)
        # Null lists have no elements, so ``indices`` does not change the elements.
        element = self.array(node.nodes[0], total)
        if indices is not None:
            lengths = np.where(indices < 0, 0, lengths[indices]) if slots else np.zeros(len(indices), np.int32)
        offsets = np.zeros(len(lengths) + 1, np.int64 if wide else np.int32)
        np.cumsum(lengths, out=offsets[1:])
        if pa.types.is_map(type_):
            return pa.MapArray.from_arrays(pa.array(offsets), element.field(0), element.field(1), type_, mask=mask)
        kind = pa.LargeListArray if wide else pa.ListArray
        return kind.from_arrays(pa.array(offsets), element, type=type_, mask=mask)

    def _fixed_list(
        self, node: Node, type_: pa.DataType, lengths: Int32s, indices: Indices | None, mask: pa.Array | None
    ) -> pa.Array:
        size = type_.list_size
        if lengths.size and (lengths != size).any():
            raise self._fail(node.column, f"a list does not have {size} elements")
        inside = None
        if indices is not None:
            # A null fixed-size list also has elements, which are null.
            self._budget.spend(int((indices < 0).sum()) * size, 0, BlockLocation(self._file, node.field.name))
            steps = np.arange(size)
            inside = np.where(indices[:, None] < 0, -1, indices[:, None] * size + steps).reshape(-1)
        element = self.array(node.nodes[0], len(lengths) * size, inside)
        if size == 0:
            bits = None if mask is None else pc.invert(mask).buffers()[1]
            count = len(lengths) if indices is None else len(indices)
            return pa.Array.from_buffers(type_, count, [bits], children=[element])
        return pa.FixedSizeListArray.from_arrays(element, type=type_, mask=mask)


def _through(indices: Indices | None, inside: Indices) -> Indices:
    if indices is None:
        return inside
    # The children of a null are null; as an index, -1 would select the last value.
    return np.where(indices < 0, -1, inside[indices]) if len(inside) else np.full(len(indices), -1)
