"""The rows of a checkpoint as Arrow, and how they are spread over files.

Protocol: *Checkpoint Format*, *Requirements for Writers*.  One row an action, one struct column a kind of action.  Rows
come in slices, each of which becomes a row group, so that what is encoded at any time is small beside the state; the
few actions that are no files come first and in a group of their own, where a reader of the table's head finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.log.checkpoint_stats import StatsParser, parse_partition_values, partition_type
from trilake.delta.log.log import Snapshot
from trilake.delta.log.replay import decoded_paths
from trilake.delta.protocol.actions import ADD, REMOVE
from trilake.errors import ObjectExistsError, ObjectNotFoundError
from trilake.expr.terms import engine
from trilake.parquet_files import PAGE_CHECKSUMS
from trilake.storage.base import Store

#: Rows of a row group.  Files stand in the order in which the log added them, so that a group holds values and
#: partitions of one time, and a lookup by its bounds reads few groups: this many files are what it reads at the least.
SLICE_ROWS = 64 * 1024
#: A file of more rows is written piece by piece, a smaller one at once.
_AT_ONCE_ROWS = 4 * SLICE_ROWS

_MAP = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
_RARE: dict[str, pa.StructType] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _NAMES),
            ("configuration", _MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _NAMES),
            ("writerFeatures", _NAMES),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _MAP)]),
    "sidecar": pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", _MAP)]
    ),
}
#: What every single-file checkpoint has a column for, whether or not there is such an action.
_ALWAYS = ("txn", "metaData", "protocol")
# Statistics of a removed file have no use: a tombstone only says which file may be deleted.
_REMOVE = pa.struct([f for f in REMOVE if f.name != "stats"])

RareActions = Sequence[tuple[str, Mapping[str, Any]]]


def rare_actions(snapshot: Snapshot) -> list[tuple[str, Mapping[str, Any]]]:
    """The actions of a snapshot that are no files, as ``(name, JSON object)``."""
    state = snapshot.state
    return [
        ("protocol", snapshot.protocol.to_json()),
        ("metaData", snapshot.metadata.to_json()),
        *(("txn", t) for t in state.txns.values()),
        *(("domainMetadata", d) for d in state.domains.values()),
    ]


@dataclass(frozen=True)
class FileColumns:
    """Which columns the ``add`` actions of a table's checkpoints have, and how their values are made."""

    type: pa.StructType
    stats: StatsParser | None
    snapshot: Snapshot
    parsed_partitions: bool

    @staticmethod
    def of(snapshot: Snapshot) -> FileColumns:
        """As the table's properties ``delta.checkpoint.writeStatsAsJson`` and ``.writeStatsAsStruct`` ask."""
        as_json = not snapshot.properties.is_off("delta.checkpoint.writeStatsAsJson")
        as_struct = snapshot.properties.is_on("delta.checkpoint.writeStatsAsStruct")
        metadata = snapshot.metadata
        partition = metadata.partition_columns
        fields = [f for f in ADD if as_json or f.name != "stats"]
        parser = None
        if as_struct:
            if partition:
                fields.append(pa.field("partitionValues_parsed", partition_type(metadata.schema, partition)))
            parser = StatsParser(metadata.schema, partition, metadata.configuration)
            fields.append(pa.field("stats_parsed", parser.type))
        return FileColumns(pa.struct(fields), parser, snapshot, as_struct and bool(partition))

    def adds(self, files: pa.Table) -> pa.StructArray:
        """``add`` actions of one slice."""
        parsed: dict[str, pa.Array | Callable[[], pa.Array]] = {"dataChange": pa.repeat(False, files.num_rows)}
        if self.stats is not None:
            parsed["stats_parsed"] = _one(self.stats.parse(files["stats"]))
        if self.parsed_partitions:
            metadata = self.snapshot.metadata
            parsed["partitionValues_parsed"] = parse_partition_values(
                files, metadata.schema, metadata.partition_columns
            )
        arrays = [parsed[f.name] if f.name in parsed else _one(files[f.name]) for f in self.type]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunk = column.combine_chunks()
    return pa.concat_arrays(chunk.chunks) if isinstance(chunk, pa.ChunkedArray) else chunk


def _removes(files: pa.Table) -> pa.StructArray:
    return pa.StructArray.from_arrays([_one(files[f.name]) for f in _REMOVE], fields=list(_REMOVE))


@dataclass(frozen=True)
class Piece:
    """What one file of a checkpoint holds."""

    rare: RareActions
    adds: pa.Table
    removes: pa.Table

    @property
    def num_rows(self) -> int:
        """How many actions."""
        return len(self.rare) + int(self.adds.num_rows) + int(self.removes.num_rows)


def split(whole: Piece, parts: int) -> list[Piece]:
    """File actions spread over ``parts`` by a hash of their path, the others in the first.

    The hash is MD5 of the decoded path: every attempt, by whatever version of this library, spreads alike.
    """
    if parts == 1:
        return [whole]
    owner_of_adds, owner_of_removes = (_owners(t, parts) for t in (whole.adds, whole.removes))
    return [
        Piece(
            whole.rare if i == 0 else (),
            whole.adds.take(pa.array(np.flatnonzero(owner_of_adds == i))),
            whole.removes.take(pa.array(np.flatnonzero(owner_of_removes == i))),
        )
        for i in range(parts)
    ]


def _owners(files: pa.Table, parts: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    parts_of_files = engine.query(
        f"select (md5_number_lower(p) % {parts})::bigint as part from t",
        t=pa.table({"p": decoded_paths(files["path"])}),
    )["part"]
    owners: np.ndarray[Any, np.dtype[np.int64]] = parts_of_files.to_numpy()
    return owners


def file_schema(columns: FileColumns, rare: RareActions, *, files_only: bool = False) -> pa.Schema:
    """The Arrow schema of a checkpoint's file; ``files_only`` for a sidecar."""
    names = {n for n, _ in rare}
    fields = [pa.field(n, t) for n, t in _RARE.items() if n in names or n in _ALWAYS]
    files = [pa.field("add", columns.type), pa.field("remove", _REMOVE)]
    return pa.schema(files if files_only else [*files, *fields])


def slices(piece: Piece, columns: FileColumns, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of one file, a row group at a time."""
    if piece.rare:
        counts = len(piece.rare)
        arrays = {
            name: pa.array(
                [_row(data, schema.field(name).type) if n == name else None for n, data in piece.rare],
                schema.field(name).type,
            )
            for name in {n for n, _ in piece.rare}
        }
        yield _filled(schema, arrays, counts)
    for kind, files, make in (("add", piece.adds, columns.adds), ("remove", piece.removes, _removes)):
        for start in range(0, files.num_rows, SLICE_ROWS):
            part = files.slice(start, SLICE_ROWS)
            yield _filled(schema, {kind: make(part)}, part.num_rows)


def _row(data: Mapping[str, Any], type_: pa.StructType) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in type_:
        value = data.get(f.name)
        if isinstance(value, Mapping):
            value = list(value.items()) if pa.types.is_map(f.type) else _row(value, f.type)
        out[f.name] = value
    return out


def _filled(schema: pa.Schema, arrays: Mapping[str, pa.Array], rows: int) -> pa.Table:
    return pa.Table.from_arrays(
        [arrays[f.name] if f.name in arrays else pa.nulls(rows, f.type) for f in schema], schema=schema
    )


def write_parquet(
    store: Store, key: str, schema: pa.Schema, tables: Iterator[pa.Table], rows: int, *, absent: bool = False
) -> int:
    """Write one file of a checkpoint; its size in bytes.  It appears whole or not at all.

    With ``absent`` a file that is there stays, and ``ObjectExistsError`` is raised; a large one that another process
    finishes meanwhile is replaced.
    """
    if rows <= _AT_ONCE_ROWS:
        sink = pa.BufferOutputStream()
        _encode(sink, schema, tables)
        data = sink.getvalue()
        (store.put_if_absent if absent else store.put)(key, data)
        return int(data.size)
    if absent:
        with suppress(ObjectNotFoundError):
            store.head(key)
            raise ObjectExistsError("a checkpoint of this version is there", file=key)
    with store.open_output(key) as out:
        counter = pa.PythonFile(out, mode="w")
        _encode(counter, schema, tables)
        size: int = counter.tell()
        counter.flush()
    return size


def _encode(sink: pa.NativeFile, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    dictionary = [
        f"{kind}.{map_}.key_value.{part}"
        for kind in ("add", "remove")
        for map_ in ("partitionValues", "tags")
        for part in ("key", "value")
        if kind in schema.names
    ]
    with pq.ParquetWriter(
        sink, schema, compression="snappy", use_dictionary=dictionary or False, store_schema=False, **PAGE_CHECKSUMS
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=SLICE_ROWS)
