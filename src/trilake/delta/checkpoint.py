"""Reading checkpoints: single, multi-part, and v2 with sidecars, in Parquet or JSON.

Protocol: *Checkpoints*.  The ``add`` column is read as Arrow and kept so; the few other actions become JSON objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.delta.actions import FILE_ACTIONS, RARE_ACTIONS, ActionBatch, parse_commits
from trilake.delta.replay import State, apply, empty_state
from trilake.delta.segment import SIDECARS, LogSegment
from trilake.errors import CorruptLogError, ObjectNotFoundError, StorageError
from trilake.expr import engine
from trilake.storage.base import Store

_BATCH_ROWS = 128 * 1024
#: Parts of an ``add`` in a checkpoint that repeat what its text fields say.
_PARSED = ("stats_parsed", "partitionValues_parsed")


def read_checkpoint(store: Store, segment: LogSegment) -> State:
    """The state that the segment's checkpoint holds, without its tombstones."""
    if segment.checkpoint_version is None:
        return empty_state()
    adds, rare = _read_files(store, segment, "add")
    state = empty_state()
    state = apply(state, _batch(segment.checkpoint_version, rare))
    return State(adds, state.removes, state.protocol, state.metadata, state.txns, state.domains)


def read_checkpoint_tombstones(store: Store, segment: LogSegment) -> pa.Table:
    """The ``remove`` actions of the segment's checkpoint."""
    if segment.checkpoint_version is None:
        return empty_state().removes
    return _read_files(store, segment, "remove")[0]


def _batch(version: int, rare: Sequence[tuple[str, Any]]) -> ActionBatch:
    from trilake.delta.actions import EMPTY_BATCH

    return ActionBatch(EMPTY_BATCH.add, EMPTY_BATCH.remove, EMPTY_BATCH.cdc, tuple((version, n, d) for n, d in rare))


def _read_files(store: Store, segment: LogSegment, kind: str) -> tuple[pa.Table, list[tuple[str, Any]]]:
    version = segment.checkpoint_version
    assert version is not None
    tables: list[pa.Table] = []
    rare: list[tuple[str, Any]] = []
    for file in segment.checkpoint_files:
        found, others = _read_file(store, file.key, kind, version)
        tables.append(found)
        rare += others
    sidecars = [d for n, d in rare if n == "sidecar"]
    for sidecar in sidecars:
        key = _sidecar_key(str(sidecar.get("path") or ""), version)
        found, _ = _read_file(store, key, kind, version)
        tables.append(found)
    return pa.concat_tables(tables), rare


def _sidecar_key(path: str, version: int) -> str:
    from urllib.parse import unquote

    name = unquote(path).rpartition("/")[2]
    if not name:
        raise CorruptLogError("checkpoint names a sidecar without a path", version=version)
    return f"{SIDECARS}/{name}"


def _read_file(store: Store, key: str, kind: str, version: int) -> tuple[pa.Table, list[tuple[str, Any]]]:
    try:
        if key.endswith(".json"):
            batch = parse_commits([(version, key, store.read(key))])
            table = {"add": batch.add, "remove": batch.remove}[kind].drop_columns(["version", "order"])
            return table, [(n, d) for _, n, d in batch.rare]
        with store.open_input(key) as source:
            return _read_parquet(source, kind)
    except ObjectNotFoundError as e:
        raise CorruptLogError(
            "checkpoint file is missing", help="restore the file from a copy", file=key, version=version
        ) from e
    except (pa.ArrowException, OSError) as e:
        if isinstance(e, StorageError):
            raise
        raise CorruptLogError(
            f"checkpoint cannot be read: {e}",
            help="move the file away if the commits before it are all there: the log is replayed without it",
            file=key,
            version=version,
        ) from e


def _read_parquet(source: pa.NativeFile, kind: str) -> tuple[pa.Table, list[tuple[str, Any]]]:
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=False)
    schema = file.schema_arrow
    present = set(schema.names)
    wanted = [n for n in RARE_ACTIONS if n in present and n != "commitInfo"]
    parts: list[str] = []
    if kind in present:
        fields = schema.field(kind).type
        parts = [f"{kind}.{f.name}" for f in fields if f.name in FILE_ACTIONS[kind].names]
        if "stats_parsed" in fields.names and _needs_parsed_stats(file, fields):
            parts.append(f"{kind}.stats_parsed")
    tables: list[pa.Table] = []
    rare: list[tuple[str, Any]] = []
    # Piece by piece, so that the raw column and the actions made of it never stand in memory twice as a whole.
    for batch in file.iter_batches(_BATCH_ROWS, columns=[*wanted, *parts], use_threads=True):
        piece = pa.Table.from_batches([batch])
        for name in wanted:
            rare += [
                (name, {k: v for k, v in row.items() if v is not None}) for row in piece[name].drop_null().to_pylist()
            ]
        tables.append(_file_actions(piece, kind))
    return pa.concat_tables(tables or [pa.schema(list(FILE_ACTIONS[kind])).empty_table()]), rare


def _needs_parsed_stats(file: pq.ParquetFile, fields: pa.StructType) -> bool:
    """Whether some rows may have their statistics in ``stats_parsed`` only (``writeStatsAsJson=false``)."""
    if "stats" not in fields.names:
        return True
    meta = file.metadata
    index = next(i for i in range(meta.num_columns) if meta.schema.column(i).path == "add.stats")
    for group in range(meta.num_row_groups):
        statistics = meta.row_group(group).column(index).statistics
        if (
            statistics is None
            or not statistics.has_null_count
            or statistics.null_count == meta.row_group(group).num_rows
        ):
            return True
    return False


def _file_actions(table: pa.Table, kind: str) -> pa.Table:
    """The file actions of one kind with all their fields, whatever the checkpoint's writer left out."""
    type_ = FILE_ACTIONS[kind]
    if kind not in table.column_names:
        return pa.schema(list(type_)).empty_table()
    column = table[kind]
    mask = pc.is_valid(column)
    if pc.all(mask).as_py() is False:
        column = column.filter(mask)
    have = set(column.type.names)
    arrays = []
    for f in type_:
        if f.name in have:
            arrays.append(_conform(pc.struct_field(column, f.name), f.type))
        else:
            arrays.append(pa.nulls(len(column), f.type))
    out = pa.Table.from_arrays(arrays, schema=pa.schema(list(type_)))
    if "stats_parsed" in have:
        text = engine.query(
            "select case when s is null then null else to_json(s)::varchar end as s from t order by i",
            t=pa.table({"s": pc.struct_field(column, "stats_parsed"), "i": pa.array(range(len(column)), pa.int64())}),
        )["s"]
        stats = pc.coalesce(out["stats"], text.cast(pa.string()))
        out = out.set_column(out.schema.get_field_index("stats"), out.schema.field("stats"), stats)
    return out


def _conform(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    if pa.types.is_struct(type_):
        have = set(column.type.names)
        chunks = [
            pa.StructArray.from_arrays(
                [chunk.field(f.name).cast(f.type) if f.name in have else pa.nulls(len(chunk), f.type) for f in type_],
                fields=list(type_),
                mask=chunk.is_null(),
            )
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, type_)
    return column.cast(type_)
