"""Actions: the lines of a commit and the rows of a checkpoint.

Protocol: *Actions*.  File actions (``add``, ``remove``, ``cdc``) come by the million and are always Arrow structs; the
rare ones (``metaData``, ``protocol``, ``txn``, ``domainMetadata``, ``commitInfo`` ...) are small frozen dataclasses or
plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from struct import pack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.delta.protocol.schema import StructType, parse_schema
from trilake.delta.protocol.schema_edit import strip
from trilake.errors import CorruptLogError

_STRING_MAP = pa.map_(pa.string(), pa.string())
#: Prefix of the field metadata keys of column mapping.
_MAPPING = "delta.columnMapping."

DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _STRING_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _STRING_MAP),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _STRING_MAP),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("tags", _STRING_MAP),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
CDC = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _STRING_MAP),
        ("size", pa.int64()),
        ("dataChange", pa.bool_()),
        ("tags", _STRING_MAP),
    ]
)
FILE_ACTIONS: dict[str, pa.StructType] = {"add": ADD, "remove": REMOVE, "cdc": CDC}
#: Actions that stay JSON: there are few per commit, and their form varies.
RARE_ACTIONS = ("metaData", "protocol", "txn", "domainMetadata", "commitInfo", "checkpointMetadata", "sidecar")


@dataclass(frozen=True)
class Protocol:
    """The ``protocol`` action: its versions and, from reader version 3 and writer version 7 on, its table features."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any], *, version: int | None = None) -> Protocol:
        """Parse the JSON object.  Raises ``CorruptLogError`` if a required field is missing."""
        try:
            reader, writer = data.get("readerFeatures"), data.get("writerFeatures")
            return Protocol(
                _protocol_version(data["minReaderVersion"]),
                _protocol_version(data["minWriterVersion"]),
                None if reader is None else _names(reader, "readerFeatures"),
                None if writer is None else _names(writer, "writerFeatures"),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise CorruptLogError(f"the protocol action is incomplete ({e})", version=version) from e

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
        }
        if self.reader_features is not None:
            out["readerFeatures"] = list(self.reader_features)
        if self.writer_features is not None:
            out["writerFeatures"] = list(self.writer_features)
        return out


@dataclass(frozen=True)
class Metadata:
    """The ``metaData`` action."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    provider: str = "parquet"
    format_options: Mapping[str, str] = field(default_factory=dict)
    created_time: int | None = None

    @cached_property
    def schema(self) -> StructType:
        """The parsed ``schemaString``; without column mapping, ids and physical names are removed.

        A schema copied from a mapped table may have them, but they do not apply to this table's files.
        """
        return self._parsed_schema()

    def _parsed_schema(self, version: int | None = None) -> StructType:
        schema = parse_schema(self.schema_string, version=version)
        noted = self.column_mapping_mode == "none" and _MAPPING in self.schema_string
        return strip(schema) if noted else schema

    @property
    def column_mapping_mode(self) -> str:
        """``none``, ``name`` or ``id``."""
        return self.configuration.get("delta.columnMapping.mode", "none").lower()

    @staticmethod
    def from_json(data: Mapping[str, Any], *, version: int | None = None) -> Metadata:
        """Parse the JSON object.  Raises ``CorruptLogError`` if a required field is missing."""
        try:
            fmt = data.get("format") or {}
            metadata = Metadata(
                id=str(data.get("id") or ""),
                # Databricks writes no schema for a table without columns.
                schema_string="" if (string := data.get("schemaString")) is None else _schema_string(string),
                partition_columns=_names(data.get("partitionColumns")),
                configuration={str(k): _setting(v) for k, v in _pairs(data.get("configuration")) if v is not None},
                name=data.get("name"),
                description=data.get("description"),
                provider=str(fmt.get("provider") or "parquet"),
                format_options={str(k): str(v) for k, v in _pairs(fmt.get("options")) if v is not None},
                created_time=data.get("createdTime"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise CorruptLogError(f"the metaData action is incomplete ({e})", version=version) from e
        schema = metadata._parsed_schema(version)
        # In the metadata's spelling, which the partition values of files use.
        missing = [c for c in metadata.partition_columns if c not in schema.names]
        if missing:
            raise CorruptLogError(f"partition columns {missing} are not in the schema", version=version)
        vars(metadata)["schema"] = schema  # avoids parsing it again
        return metadata

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "format": {"provider": self.provider, "options": dict(self.format_options)},
            "schemaString": self.schema_string or None,
            "partitionColumns": list(self.partition_columns),
            "createdTime": self.created_time,
            "configuration": dict(self.configuration),
        }
        return {k: v for k, v in out.items() if v is not None}


def _setting(value: Any) -> str:
    """The value of a property as a string; some writers leave out the quotes around booleans."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _schema_string(value: Any) -> str:
    """Refuse an empty ``schemaString``, which would hide all columns."""
    if not value or not isinstance(value, str):
        raise TypeError(f"schemaString must be a string, got {value!r:.80}")
    return value


def _protocol_version(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r:.80} is not a valid protocol version")
    return value


def _names(value: Any, field: str = "partitionColumns") -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError(f"{field} is not a list of names")
    return tuple(value)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """A JSON object, or an Arrow map (a list of pairs), as pairs."""
    if not value:
        return []
    return list(value.items()) if isinstance(value, Mapping) else list(value)


@dataclass(frozen=True)
class ActionBatch:
    """Actions in log order.

    ``add``, ``remove`` and ``cdc`` are tables with the fields of the action plus ``version`` and ``order`` (the
    position in the whole batch, which decides which action is newest).  ``rare`` holds the other actions as ``(version,
    name, JSON object)``.
    """

    add: pa.Table
    remove: pa.Table
    cdc: pa.Table
    rare: tuple[tuple[int, str, Any], ...] = ()

    def of(self, name: str) -> list[tuple[int, Any]]:
        """The rare actions of one kind as ``(version, object)``, oldest first."""
        return [(v, data) for v, n, data in self.rare if n == name]


def empty_actions(kind: str) -> pa.Table:
    """An empty table of file actions of one kind, with ``version`` and ``order``."""
    return no_rows(action_schema(kind))


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table.

    ``Schema.empty_table()`` creates list arrays, for which pyarrow (26) loads pandas if that is installed.
    """
    return pa.Table.from_batches([], schema)


def action_schema(kind: str) -> pa.Schema:
    """The columns of a table of file actions of one kind."""
    return pa.schema([*FILE_ACTIONS[kind], pa.field("version", pa.int64()), pa.field("order", pa.int64())])


EMPTY_BATCH = ActionBatch(empty_actions("add"), empty_actions("remove"), empty_actions("cdc"))


# --- Build Arrow values from buffers, to open a table quickly ---------------------------------------------------------
# `pa.array`, `pa.scalar`, `Array.to_numpy` and Acero load pandas if it is installed, which takes longer than opening a
# table.


def string_scalar(schema: str) -> pa.Scalar:
    """A string scalar."""
    data = schema.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(pack("=ii", 0, len(data))), pa.py_buffer(data))[0]


def int64_array(numbers: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Integers as an array, without a copy if they are contiguous."""
    data = np.ascontiguousarray(numbers, np.int64)
    return pa.Int64Array.from_buffers(pa.int64(), len(data), [None, pa.py_buffer(data)])


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Values of a file action's field as an array; a map is a list of pairs.

    Raises ``TypeError`` for a value of another type, and ``OverflowError`` for one that is too large.
    """
    valid = [v is not None for v in values]
    if not any(valid):
        return pa.nulls(len(values), type_)
    children = None
    if pa.types.is_struct(type_):
        _check_all(dict, values)
        children = [array_of([None if v is None else v.get(f.name) for v in values], f.type) for f in type_]
        buffers = []
    elif pa.types.is_map(type_):
        _check_all(list, values)
        keys, items = zip(*pairs, strict=True) if (pairs := [pair for v in values for pair in v or ()]) else ((), ())
        entry = pa.struct([type_.key_field, type_.item_field])
        columns = [array_of(keys, type_.key_type), array_of(items, type_.item_type)]
        children = [pa.StructArray.from_buffers(entry, len(keys), [None], children=columns)]
        buffers = [_offsets(len(v or ()) for v in values)]
    elif pa.types.is_string(type_):
        _check_all(str, values)
        encoded = [b"" if v is None else v.encode() for v in values]
        buffers = [_offsets(map(len, encoded)), pa.py_buffer(b"".join(encoded))]
    elif pa.types.is_boolean(type_):
        _check_all(bool, values)
        buffers = [_bits([bool(v) for v in values])]
    else:
        _check_all(int, values)
        buffers = [pa.py_buffer(np.array([v or 0 for v in values], f"i{type_.bit_width // 8}"))]
    mask = None if all(valid) else _bits(valid)
    return pa.Array.from_buffers(type_, len(values), [mask, *buffers], children=children)


def _check_all(type_: type, values: Sequence[Any]) -> None:
    if any(type(v) is not type_ and v is not None for v in values):
        raise TypeError(f"a value is not of type {type_.__name__}")


def _offsets(lengths: Iterable[int]) -> pa.Buffer:
    return pa.py_buffer(np.array(list(accumulate(lengths, initial=0)), np.int32))


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def as_numpy(numbers: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Integers without nulls as a numpy array, without a copy.  Raises ``ValueError`` for nulls."""
    if numbers.null_count:
        raise ValueError("expected integers without nulls")
    if not len(numbers):
        return np.empty(0, numbers.type.to_pandas_dtype())
    return np.frombuffer(numbers.buffers()[1], numbers.type.to_pandas_dtype())[numbers.offset :][: len(numbers)]
