"""``ColumnOptions``, and the columns of a schema with such options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

from trilake.errors import InvalidArgumentError, UnknownOptionError
from trilake.trevni.blocks.codecs import check_checksum, check_codec
from trilake.trevni.blocks.encode import ColumnEncoder, Spool
from trilake.trevni.blocks.layout import (
    CHECKSUM,
    CODEC,
    MAX_DEPTH,
    RESERVED,
    ColumnDescriptor,
    Metadata,
    ValueType,
)
from trilake.trevni.file.column_file import Column
from trilake.trevni.nesting.assemble import PRESENCE
from trilake.trevni.nesting.shred import (
    SORTED,
    ColumnBuilder,
    PhysicalColumn,
)

#: Maximum rows in a block of a presence column, and in any block.
_PRESENCE_ROWS, _MAX_ROWS = 1 << 18, 0x7FFFFFFF


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
    metadata: Metadata = field(default_factory=dict)

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
                raise UnknownOptionError(
                    f"{name!r} is not an option of a column", help=f"use one of {', '.join(sorted(names))}"
                )
        return ColumnOptions(**options)


#: Options by column name, or the columns of another file, to write columns like those.
ColumnsLike = Mapping[str, ColumnOptions | Mapping[str, Any]] | Sequence[ColumnDescriptor] | Sequence[Column]

#: Keys of column metadata that only the writer sets.
_WRITERS_KEYS = frozenset({PRESENCE, SORTED})

_SAME_BITS = [
    {ValueType.INT, ValueType.FIXED32},
    {ValueType.LONG, ValueType.FIXED64},
    {ValueType.STRING, ValueType.BYTES},
]


class SchemaColumns(ColumnBuilder):
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
        properties = _properties(options)
        # A run may encode all rows of a file: without this limit, reading a few rows would decode all of them.
        most = _PRESENCE_ROWS if presence is not None else _MAX_ROWS
        encoder = self._file.encoder(type, array, options.codec, options.checksum, options.values, most, name)
        return PhysicalColumn(name, encoder, parent, properties, presence)

    def check_names(self) -> None:
        """Raise ``InvalidArgumentError`` for options of unknown columns."""
        unknown = [name for name in self._options if name not in self._names and not name.endswith("?")]
        if unknown:
            raise InvalidArgumentError(
                f"columns with options not found in the file: {', '.join(map(repr, unknown))}",
                help=f"the columns are {', '.join(sorted(self._names))}",
            )


def _other_type(type_: ValueType, name: str, column: str) -> ValueType:
    try:
        other = ValueType(name)
    except ValueError:
        raise InvalidArgumentError(f"{name!r} is not a Trevni type", column=column) from None
    if any({other, type_} <= same for same in [{type_}, *_SAME_BITS]):
        return other
    raise InvalidArgumentError(f"values of type {type_.value} cannot be written as {name}", column=column)


def _properties(options: ColumnOptions) -> dict[str, bytes]:
    properties: dict[str, bytes] = {}
    if options.codec is not None:
        properties[CODEC] = check_codec(options.codec).encode()
    if options.checksum is not None:
        properties[CHECKSUM] = check_checksum(options.checksum).encode()
    return {**properties, **user_metadata(options.metadata)}


def check_depth(name: str, parent: PhysicalColumn | None) -> None:
    """Raise ``InvalidArgumentError`` for a column with more ancestors than readers allow."""
    depth, above = 0, parent
    while above is not None:
        depth, above = depth + 1, above.parent
    if depth > MAX_DEPTH:
        raise InvalidArgumentError(f"the column is nested more than {MAX_DEPTH} levels deep", column=name)


def user_metadata(metadata: Mapping[Any, Any]) -> dict[str, bytes]:
    """Convert metadata to bytes.  Raises ``InvalidArgumentError`` for reserved keys and other types."""
    encoded: dict[str, bytes] = {}
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, bytes | str):
            raise InvalidArgumentError(f"metadata must map strings to bytes, got {key!r} to {type(value).__name__}")
        if key.startswith(RESERVED):
            raise InvalidArgumentError(f"the metadata key {key!r} starts with {RESERVED!r}, which is reserved")
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
        self,
        type_: ValueType,
        array: bool,
        codec: str | None,
        checksum: str | None,
        values: bool,
        max_rows: int = _MAX_ROWS,
        column: str | None = None,
    ) -> ColumnEncoder:
        return ColumnEncoder(
            type_,
            array,
            self.spool,
            codec=check_codec(codec if codec is not None else self.codec),
            checksum=check_checksum(checksum if checksum is not None else self.checksum),
            values=values,
            block_size=self.block_size,
            max_rows=max_rows,
            column=column,
        )
