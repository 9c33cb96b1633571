"""``ColumnOptions``: how columns of a file are written, and the columns that a schema and such options make."""

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

#: Rows in a block of a presence column, and the most that a descriptor can state.
_PRESENCE_ROWS, _MAX_ROWS = 1 << 18, 0x7FFFFFFF


@dataclass(frozen=True)
class ColumnOptions:
    """The options of one column.

    ``codec`` and ``checksum`` override those of the file; ``values`` stores each block's first value in its descriptor,
    for columns in ascending order; ``type`` names another Trevni type for the same bits (``fixed32`` for an int);
    ``metadata`` are further properties, which must not start with ``trevni.``.
    """

    codec: str | None = None
    checksum: str | None = None
    values: bool = False
    type: str | None = None
    metadata: Metadata = field(default_factory=dict)

    @staticmethod
    def of(options: ColumnOptions | Mapping[str, Any]) -> ColumnOptions:
        """The options, which may be given as a dictionary.  Raises ``UnknownOptionError``."""
        if isinstance(options, ColumnOptions):
            return options
        if not isinstance(options, Mapping):
            raise InvalidArgumentError(
                f"the options of a column are given as {options!r:.80}",
                help='give a dict, such as {"codec": "deflate"}',
            )
        known = {f.name for f in fields(ColumnOptions)}
        for name in options:
            if name not in known:
                raise UnknownOptionError(
                    f"{name!r} is not an option of a column", help=f"use {', '.join(sorted(known))}"
                )
        return ColumnOptions(**options)


#: Options by column name, or the columns of another file to write the same ones.
ColumnsLike = Mapping[str, ColumnOptions | Mapping[str, Any]] | Sequence[ColumnDescriptor] | Sequence[Column]

#: Keys of metadata by which the writer tells readers what a column is.
_OWN = frozenset({PRESENCE, SORTED})

_SAME_BITS = [
    {ValueType.INT, ValueType.FIXED32},
    {ValueType.LONG, ValueType.FIXED64},
    {ValueType.STRING, ValueType.BYTES},
]


class SchemaColumns(ColumnBuilder):
    """Makes columns from a schema's fields."""

    def __init__(self, file: FileOptions, options: Mapping[str, ColumnOptions], fields_: Sequence[str]) -> None:
        self._file, self._options = file, options
        self._taken: set[str] = set()
        self._fields = set(fields_)
        self._used: set[str] = set()
        self._numbers = count()

    def next_field(self) -> int:
        return next(self._numbers)

    def free(self, name: str) -> bool:
        return name not in self._taken and name not in self._fields

    def __call__(
        self, name: str, type: ValueType, array: bool, parent: PhysicalColumn | None, presence: int | None = None
    ) -> PhysicalColumn:
        while name in self._taken or (presence is not None and name in self._fields):
            name += "_"
        self._taken.add(name)
        check_depth(name, parent)
        options = self._options.get(name, ColumnOptions())
        self._used.add(name)
        if options.values and (array or parent is not None):
            raise InvalidArgumentError(
                "an array column, or one below an array, cannot have the option values", column=name
            )
        if options.type is not None:
            type = _other_type(type, options.type, name)
        properties = _properties(options)
        # A run may stand for all rows of a file; readers of a few rows should not have to decode them all.
        most = _PRESENCE_ROWS if presence is not None else _MAX_ROWS
        encoder = self._file.encoder(type, array, options.codec, options.checksum, options.values, most, name)
        return PhysicalColumn(name, encoder, parent, properties, presence)

    def check_names(self) -> None:
        """Raises ``InvalidArgumentError`` where options name a column that there is not."""
        unknown = [name for name in self._options if name not in self._used and not name.endswith("?")]
        if unknown:
            raise InvalidArgumentError(
                f"options are given for {', '.join(map(repr, unknown))}, and the file has no such column",
                help=f"its columns are {', '.join(sorted(self._used))}",
            )


def _other_type(type_: ValueType, name: str, column: str) -> ValueType:
    try:
        wanted = ValueType(name)
    except ValueError:
        raise InvalidArgumentError(f"{name!r} is not a Trevni type", column=column) from None
    if any({wanted, type_} <= same for same in [{type_}, *_SAME_BITS]):
        return wanted
    raise InvalidArgumentError(f"values of type {type_.value} cannot be written as {name}", column=column)


def _properties(options: ColumnOptions) -> dict[str, bytes]:
    properties: dict[str, bytes] = {}
    if options.codec is not None:
        properties[CODEC] = check_codec(options.codec).encode()
    if options.checksum is not None:
        properties[CHECKSUM] = check_checksum(options.checksum).encode()
    return {**properties, **user_metadata(options.metadata)}


def check_depth(name: str, parent: PhysicalColumn | None) -> None:
    """Raises ``InvalidArgumentError`` for a column below more others than a reader takes."""
    depth, above = 0, parent
    while above is not None:
        depth, above = depth + 1, above.parent
    if depth > MAX_DEPTH:
        raise InvalidArgumentError(f"a column is nested in more than {MAX_DEPTH} others", column=name)


def user_metadata(metadata: Mapping[Any, Any]) -> dict[str, bytes]:
    """Metadata as bytes.  Raises ``InvalidArgumentError`` for a reserved key, and for other values."""
    own: dict[str, bytes] = {}
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, bytes | str):
            raise InvalidArgumentError(f"metadata must map strings to bytes, got {key!r} to {type(value).__name__}")
        if key.startswith(RESERVED):
            raise InvalidArgumentError(f"the metadata key {key!r} starts with {RESERVED!r}, which is reserved")
        if key in _OWN:
            raise InvalidArgumentError(f"the metadata key {key!r} is what the writer says of a column")
        own[key] = value.encode() if isinstance(value, str) else value
    return own


@dataclass(frozen=True)
class FileOptions:
    """The options of a file, which columns have that do not say others."""

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
