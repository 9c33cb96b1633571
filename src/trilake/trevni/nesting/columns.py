"""Columns of a new file: their options, properties and encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

import pyarrow as pa

from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError, UnknownOptionError
from trilake.trevni.blocks import layout, order
from trilake.trevni.blocks.codecs import check_checksum, check_codec
from trilake.trevni.blocks.encode import ColumnEncoder, Spool
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.nesting.assemble import PRESENCE

#: Maximum rows in a block of a presence column, and in any block.
_PRESENCE_ROWS, _MAX_ROWS = 1 << 18, 0x7FFFFFFF


#: Key of column metadata: the values of this ``values`` column ascend.
SORTED = "trilake.sorted"


class PhysicalColumn:
    """A column of a new file, with its properties and encoder."""

    def __init__(
        self,
        name: str,
        encoder: ColumnEncoder,
        parent: PhysicalColumn | None,
        properties: layout.Metadata,
        presence: int | None = None,
    ) -> None:
        self.name, self.encoder, self.parent = name, encoder, parent
        self._properties, self._presence = properties, presence
        self._sorted = encoder.values
        self._last: Any = None

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata of the column in the order of the reference: name, type, then others."""
        properties = {layout.NAME: self.name.encode(), layout.TYPE: self.encoder.type.value.encode()}
        if self.encoder.array:
            properties[layout.ARRAY] = b""
        if self.parent is not None:
            properties[layout.PARENT] = self.parent.name.encode()
        if self.encoder.values:
            properties[layout.VALUES] = b""
        properties.update(self._properties)
        if self._presence is not None:
            properties[PRESENCE] = b"%d" % self._presence
        if self._sorted:
            properties[SORTED] = b""
        return properties

    def watch(self, values: pa.Array) -> None:
        """Track whether the values of a ``values`` column ascend."""
        if not self._sorted or not len(values):
            return
        compare = order.key(self.encoder.type)
        first, last = values[0].as_py(), values[-1].as_py()
        after_last = self._last is None or compare(self._last) <= compare(first)
        self._sorted = after_last and order.is_sorted(values, self.encoder.type)
        self._last = last


@dataclass(frozen=True)
class ColumnOptions:
    """How to write a column.

    ``codec`` and ``checksum`` override those of the file.  ``values`` stores the first value of each block in its
    descriptor, for columns in ascending order.  ``type`` is another Trevni type of the same width (``fixed32`` for an
    int).  ``metadata`` are additional properties, whose names must not start with ``trevni.``.
    """

    codec: str | None = None
    checksum: str | None = None
    values: bool = False
    type: str | None = None
    metadata: layout.Metadata = field(default_factory=dict)

    @staticmethod
    def of(options: ColumnOptions | Mapping[str, Any]) -> ColumnOptions:
        """Convert a dictionary to options.  Raises ``UnknownOptionError``."""
        if isinstance(options, ColumnOptions):
            return options
        if not isinstance(options, Mapping):
            raise InvalidArgumentError(
                f"the options of a column must be a dict, got {options!r:.80}",
                help='pass options such as {"codec": "deflate"}',
            )
        names = {f.name for f in fields(ColumnOptions)}
        for name in options:
            if name not in names:
                help = f"use one of {', '.join(sorted(names))}"
                raise UnknownOptionError(f"{name!r} is not an option of a column", help=help)
        return ColumnOptions(**options)


#: Keys of column metadata that only the writer sets.
_WRITERS_KEYS = frozenset({PRESENCE, SORTED})

_SAME_BITS = {"int": "fixed32", "long": "fixed64", "string": "bytes"}
_SAME_BITS |= {b: a for a, b in _SAME_BITS.items()}


class SchemaColumns:
    """Creates the columns of a schema."""

    def __init__(self, file: FileOptions, options: Mapping[str, ColumnOptions], fields_: Sequence[str]) -> None:
        self._file, self._options = file, options
        self._names: set[str] = set()
        self._fields = set(fields_)
        self._numbers = count()

    def next_field(self) -> int:
        return next(self._numbers)

    def free(self, name: str) -> bool:
        return name not in self._names and name not in self._fields

    def __call__(
        self, name: str, type: ValueType, array: bool, parent: PhysicalColumn | None, presence: int | None = None
    ) -> PhysicalColumn:
        while name in self._names or (presence is not None and name in self._fields):
            name += "_"
        self._names.add(name)
        check_depth(name, parent)
        options = self._options.get(name, ColumnOptions())
        if options.values and (array or parent is not None):
            raise InvalidArgumentError("array columns and their children cannot have the option values", column=name)
        if options.type is not None:
            type = _other_type(type, options.type, name)
        properties = user_metadata(options.metadata)
        if options.checksum is not None:
            properties = {layout.CHECKSUM: check_checksum(options.checksum).encode(), **properties}
        if options.codec is not None:
            properties = {layout.CODEC: check_codec(options.codec).encode(), **properties}
        # A run may encode all rows of a file: without this limit, reading a few rows would decode all of them.
        most = _PRESENCE_ROWS if presence is not None else _MAX_ROWS
        encoder = self._file.encoder(type, array, options, name, most)
        return PhysicalColumn(name, encoder, parent, properties, presence)

    def check_names(self) -> None:
        """Raise ``InvalidArgumentError`` for options of unknown columns."""
        unknown = [name for name in self._options if name not in self._names and not name.endswith("?")]
        if unknown:
            raise InvalidArgumentError(
                f"columns with options not found in the file: {', '.join(map(repr, unknown))}",
                help=columns_help(unknown[0], sorted(self._names)),
            )


def _other_type(type_: ValueType, name: str, column: str) -> ValueType:
    try:
        other = ValueType(name)
    except ValueError:
        raise InvalidArgumentError(f"{name!r} is not a Trevni type", column=column) from None
    if other is type_ or _SAME_BITS.get(other.value) == type_.value:
        return other
    raise InvalidArgumentError(f"values of type {type_.value} cannot be written as {name}", column=column)


def check_depth(name: str, parent: PhysicalColumn | None) -> None:
    """Raise ``InvalidArgumentError`` for a column with more ancestors than readers allow."""
    depth, above = 0, parent
    while above is not None:
        depth, above = depth + 1, above.parent
    if depth > layout.MAX_DEPTH:
        raise InvalidArgumentError(f"the column is nested more than {layout.MAX_DEPTH} levels deep", column=name)


def user_metadata(metadata: Mapping[Any, Any]) -> dict[str, bytes]:
    """Convert metadata to bytes.  Raises ``InvalidArgumentError`` for reserved keys and other types."""
    encoded: dict[str, bytes] = {}
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, bytes | str):
            raise InvalidArgumentError(f"metadata must map strings to bytes, got {key!r} to {type(value).__name__}")
        if key.startswith(layout.RESERVED):
            raise InvalidArgumentError(f"the metadata key {key!r} starts with {layout.RESERVED!r}, which is reserved")
        if key in _WRITERS_KEYS:
            raise InvalidArgumentError(f"the metadata key {key!r} is reserved for the writer")
        encoded[key] = value.encode() if isinstance(value, str) else value
    return encoded


@dataclass(frozen=True)
class FileOptions:
    """The options of a file, which are the defaults of its columns."""

    spool: Spool
    codec: str
    checksum: str
    block_size: int

    def encoder(
        self, type_: ValueType, array: bool, options: ColumnOptions, column: str, max_rows: int = _MAX_ROWS
    ) -> ColumnEncoder:
        return ColumnEncoder(
            type_,
            array,
            self.spool,
            codec=check_codec(self.codec if options.codec is None else options.codec),
            checksum=check_checksum(self.checksum if options.checksum is None else options.checksum),
            values=options.values,
            block_size=self.block_size,
            max_rows=max_rows,
            column=column,
        )
