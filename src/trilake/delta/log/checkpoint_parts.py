"""The rows of a checkpoint as Arrow, and the files that hold them.

Protocol: *Checkpoint Format*, *Requirements for Writers*.  One row per action, one struct column per kind of action.
Each slice of rows becomes a row group, which bounds memory; the few actions that are not file actions form the first
row group, so opening a table reads only that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.delta.log.checkpoint_stats import StatsParser, parse_partition_values, partition_type
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import ADD, REMOVE, Metadata
from trilake.errors import InvalidArgumentError, ObjectExistsError
from trilake.parquet.files import PAGE_CHECKSUMS
from trilake.storage.base import Store

#: Rows of a row group.  Files keep the order in which the log added them, so the values in a group are close together
#: and a lookup by bounds reads few groups.
SLICE_ROWS = 64 * 1024
#: A file with more rows is written piece by piece, a smaller one at once.
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
#: Columns that every single-file checkpoint has, even without such an action.
_ALWAYS = ("txn", "metaData", "protocol")
# A tombstone only says which file may be deleted, so statistics are useless there.
_REMOVE = pa.struct([f for f in REMOVE if f.name != "stats"])

RareActions = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class FileColumns:
    """Which columns the ``add`` actions of a table's checkpoints have, and how to compute their values."""

    type: pa.StructType
    stats: StatsParser | None
    metadata: Metadata

    @staticmethod
    def of(snapshot: Head) -> FileColumns:
        """The columns for the table properties ``delta.checkpoint.writeStatsAsJson`` and ``.writeStatsAsStruct``."""
        as_json = (snapshot.properties.text("delta.checkpoint.writeStatsAsJson") or "").lower() != "false"
        as_struct = snapshot.properties.is_on("delta.checkpoint.writeStatsAsStruct")
        metadata = snapshot.metadata
        partition = metadata.partition_columns
        fields = [f for f in ADD if as_json or f.name != "stats"]
        parser = None
        if as_struct:
            if partition:
                fields.append(pa.field("partitionValues_parsed", partition_type(metadata.schema, partition)))
            parser = StatsParser(metadata.schema, partition, metadata.configuration, snapshot.engine.query)
            fields.append(pa.field("stats_parsed", parser.type))
        return FileColumns(pa.struct(fields), parser, metadata)

    @property
    def have_stats(self) -> bool:
        """Whether statistics outlive the commits of their files."""
        return self.stats is not None or "stats" in self.type.names

    def adds(self, files: pa.Table) -> pa.StructArray:
        columns: dict[str, pa.Array | Callable[[], pa.Array]] = {"dataChange": pa.repeat(False, files.num_rows)}
        if self.stats is not None:
            columns["stats_parsed"] = self.stats.parse(files["stats"]).combine_chunks()
        if self.stats is not None and self.metadata.partition_columns:
            columns["partitionValues_parsed"] = parse_partition_values(
                files, self.metadata.schema, self.metadata.partition_columns
            )
        arrays = [columns[f.name] if f.name in columns else files[f.name].combine_chunks() for f in self.type]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


def file_schema(columns: FileColumns, rare: RareActions, *, files_only: bool = False) -> pa.Schema:
    """The Arrow schema of a checkpoint file; ``files_only`` for a sidecar."""
    names = {n for n, _ in rare}
    fields = [pa.field(n, t) for n, t in _RARE.items() if n in names or n in _ALWAYS]
    files = [pa.field("add", columns.type), pa.field("remove", _REMOVE)]
    return pa.schema(files if files_only else [*files, *fields])


def _row(data: Mapping[str, Any], type_: pa.StructType) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in type_:
        value = data.get(f.name)
        if isinstance(value, Mapping):
            value = list(value.items()) if pa.types.is_map(f.type) else _row(value, f.type)
        out[f.name] = value
    return out


class CheckpointFile:
    """One checkpoint file, written a row group at a time; it appears whole when the ``with`` block ends without error.

    ``expected`` is the approximate number of actions: a small file is written at once.  With ``absent``, an existing
    file stays and raises ``ObjectExistsError``, but a large file may replace one that appears concurrently.  An empty
    file is only written with ``keep_empty``.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        columns: FileColumns,
        schema: pa.Schema,
        expected: int,
        *,
        absent: bool = False,
        keep_empty: bool = True,
    ) -> None:
        self.store, self.key, self.columns, self.schema = store, key, columns, schema
        self.at_once, self.absent, self.keep_empty = expected <= _AT_ONCE_ROWS, absent, keep_empty
        self.rows = self.size = 0
        self._kind, self._waiting, self._count = "add", list[pa.Table](), 0
        self._out: IO[bytes] | None = None

    def __enter__(self) -> CheckpointFile:
        if self.at_once:
            self._sink = pa.BufferOutputStream()
        else:
            if self.absent and self.store.find(self.key) is not None:
                raise ObjectExistsError("a checkpoint of this version already exists", file=self.key)
            self._out = self.store.open_output(self.key)
            self._sink = pa.PythonFile(self._out, mode="w")
        self._writer = _writer(self._sink, self.schema)
        return self

    def take_rare(self, rare: RareActions) -> None:
        """Write the actions that are not file actions as a row group."""
        if not rare:
            return
        arrays = {
            name: pa.array(
                [_row(data, self.schema.field(name).type) if n == name else None for n, data in rare],
                self.schema.field(name).type,
            )
            for name in {n for n, _ in rare}
        }
        self._write(arrays, len(rare))

    def take(self, kind: str, files: pa.Table) -> None:
        """Write file actions of one kind; ``add`` actions come before ``remove`` actions."""
        if kind != self._kind:
            self._flush(0)
            self._kind = kind
        if files.num_rows:
            self._waiting.append(files)
            self._count += files.num_rows
            self._flush(SLICE_ROWS)

    def _flush(self, least: int) -> None:
        """Write row groups until fewer than ``least`` actions are buffered, or none."""
        if self._count < max(1, least):
            return
        files, start = pa.concat_tables(self._waiting), 0
        while files.num_rows - start >= max(1, least):
            part = files.slice(start, SLICE_ROWS)
            if self._kind == "add":
                array = self.columns.adds(part)
            else:
                array = pa.StructArray.from_arrays(
                    [part[f.name].combine_chunks() for f in _REMOVE], fields=list(_REMOVE)
                )
            self._write({self._kind: array}, part.num_rows)
            start += part.num_rows
        rest = files.slice(start)
        self._waiting, self._count = [rest] if rest.num_rows else [], rest.num_rows

    def _write(self, arrays: Mapping[str, pa.Array], rows: int) -> None:
        columns = [arrays[f.name] if f.name in arrays else pa.nulls(rows, f.type) for f in self.schema]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self.schema), row_group_size=SLICE_ROWS)
        self.rows += rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush(0)
                if self.rows or self.keep_empty:
                    self._finish()
                    return
        except BaseException as e:
            self._discard(e)
            raise
        self._discard(error or ValueError("nothing to write"))

    def _finish(self) -> None:
        self._writer.close()
        if self._out is None:
            data = self._sink.getvalue()
            self.size = int(data.size)
            (self.store.put_if_absent if self.absent else self.store.put)(self.key, data)
        else:
            self.size = int(self._sink.tell())
            self._sink.flush()
            self._out.__exit__(None, None, None)

    def _discard(self, error: BaseException) -> None:
        self._writer.is_open = False  # otherwise its destructor tries to write the footer
        if self._out is not None:
            self._out.__exit__(type(error), error, None)


def _writer(sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    dictionary = [
        f"{kind}.{map_}.key_value.{part}"
        for kind in ("add", "remove")
        for map_ in ("partitionValues", "tags")
        for part in ("key", "value")
        if kind in schema.names
    ]
    return pq.ParquetWriter(
        sink, schema, compression="snappy", use_dictionary=dictionary or False, store_schema=False, **PAGE_CHECKSUMS
    )


def expiry_ms(version: Head, now_ms: int) -> int:
    """The time up to which a version's tombstones have expired by ``now_ms``."""
    try:
        return now_ms - version.properties.duration_ms("delta.deletedFileRetentionDuration")
    except InvalidArgumentError:
        return -(1 << 63)  # extra tombstones do no harm


def unexpired(removes: pa.Table, expiry_ms: int) -> pa.Table:
    """The tombstones that have not expired."""
    return removes.filter(pc.greater(pc.fill_null(removes["deletionTimestamp"], 0), expiry_ms))
