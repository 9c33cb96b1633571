"""Facts about a Delta table for a report: from its snapshot, newest commits and a few footers; no row is read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import size_text
from trilake.delta.commands.maintenance.vacuum import RETENTION
from trilake.delta.commands.optimize.bins import compaction_bins
from trilake.delta.commands.optimize.optimize import DELETED_SHARE, OptimizeRequest
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.features import features_of
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.protocol.property_values import duration_ms
from trilake.delta.protocol.schema import PrimitiveType
from trilake.delta.protocol.schema_edit import path_text
from trilake.delta.report_history import read_history
from trilake.delta.scan.read import locate
from trilake.delta.scan.statistics import StatisticsReader, record_counts
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TrilakeError
from trilake.parquet.files import DAMAGE, checked_footer, open_parquet
from trilake.storage.base import Store
from trilake.table.report_facts import (
    FILES,
    TRANSACTIONS,
    Bounds,
    ColumnBounds,
    Compaction,
    Facts,
    PartitionColumn,
    Storage,
    Tombstones,
    ranked,
)

#: Limits: files whose bounds are read, columns of them, and files whose footers are read.
_SAMPLE, _COLUMNS, _FOOTERS = 20_000, 24, 12
#: Most column chunks summed up per footer.
_CHUNKS = 100_000


def delta_facts(table: ArrowDeltaTable) -> Facts:
    """The facts of a table at its version.

    Raises ``CorruptLogError`` and the other errors of reading a log.
    """
    snapshot, log = table.snapshot, table.log
    metadata, protocol = snapshot.metadata, snapshot.protocol
    now_ms = log.engine.runtime.clock_ms()
    counts = record_counts(snapshot.adds)
    past = read_history(log, snapshot)
    return Facts(
        commands={
            "compact": "trilake.open({uri!r}).optimize()",
            "purge": "trilake.open({uri!r}).purge()",
            "vacuum": "trilake.open({uri!r}).vacuum(dry_run=False)",
            "order": "trilake.open({uri!r}).optimize(zorder_by={column!r})",
        },
        format="delta",
        uri=table.uri,
        version=snapshot.version,
        schema=table.schema,
        files=_files(snapshot, counts),
        now_ms=now_ms,
        description=metadata.description or metadata.name,
        commits=past.commits,
        partitions=_partitions(snapshot),
        tombstones=_tombstones(table, now_ms),
        bounds=_bounds(snapshot, counts),
        storage=_storage(log.store, snapshot),
        schema_changes=past.schema_changes,
        transactions=_transactions(snapshot),
        compaction=_compaction(snapshot),
        has_vectors=True,
        clustering=tuple(".".join(c) for c in clustering_columns(snapshot)),
        properties=dict(sorted(metadata.configuration.items())),
        features=tuple(sorted(features_of(protocol))),
        protocol=f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        notes=past.notes,
    )


def _files(snapshot: Snapshot, counts: pa.ChunkedArray) -> pa.Table:
    adds = snapshot.adds
    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    return pa.table(
        [decoded_paths(adds["path"]), adds["size"].cast(pa.int64()), counts, deleted.cast(pa.int64())], schema=FILES
    )


def _partitions(snapshot: Snapshot) -> tuple[PartitionColumn, ...]:
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    keys = PartitionKeys.of(snapshot.adds["partitionValues"], fields)
    columns = zip(fields, keys.strings(), strict=True)
    return tuple(PartitionColumn(f.name, pa.chunked_array([strings], pa.string())) for f, strings in columns)


def _tombstones(table: ArrowDeltaTable, now_ms: int) -> Tombstones:
    """Removed files that are not live: a file with a new deletion vector has a tombstone, and stays."""
    removes = table.log.tombstones(table.snapshot)
    retention = table.snapshot.properties.text(RETENTION) or ""
    if not removes.num_rows:
        return Tombstones(retention=retention.removeprefix("interval "))
    live = pc.unique(decoded_paths(table.snapshot.adds["path"]))
    paths = decoded_paths(removes["path"])
    gone = (
        pa.table({"path": paths, "size": removes["size"], "at": pc.fill_null(removes["deletionTimestamp"], 0)})
        .filter(pc.invert(pc.is_in(paths, live)))
        .group_by("path")
        .aggregate([("size", "max"), ("at", "max")])
    )
    expired = gone.filter(pc.less(gone["at_max"], now_ms - duration_ms(retention)))
    return Tombstones(
        files=gone.num_rows,
        size=int(pc.sum(gone["size_max"]).as_py() or 0),
        expired_files=expired.num_rows,
        expired_size=int(pc.sum(expired["size_max"]).as_py() or 0),
        retention=retention.removeprefix("interval "),
        unsized=gone["size_max"].null_count,
    )


# --- columns ---------------------------------------------------------------------------------------------------------


def _bounds(snapshot: Snapshot, counts: pa.ChunkedArray) -> Bounds | None:
    """Bounds of the clustering columns first, then of the others in schema order."""
    adds, total = snapshot.adds, snapshot.adds.num_rows
    if not total:
        return None
    if total > _SAMPLE:
        chosen = pa.array(np.sort(np.random.default_rng(0).choice(total, _SAMPLE, replace=False)))
        adds, counts = adds.take(chosen), counts.take(chosen)
    partition = tuple(snapshot.schema.field(c).name for c in snapshot.metadata.partition_columns)
    reader = StatisticsReader(adds.select(["stats", "partitionValues"]), snapshot.schema, partition)
    paths = [tuple(p) for p in clustering_columns(snapshot)]
    plain = [(f.name,) for f in snapshot.schema.fields if isinstance(f.type, PrimitiveType)]
    paths += [p for p in plain if p not in paths and p[0] not in partition]
    reader.read(paths[:_COLUMNS])
    columns = [_column_bounds(reader, path, counts) for path in paths[:_COLUMNS]]
    return Bounds(tuple(c for c in columns if c is not None), total, adds.num_rows, max(0, len(paths) - _COLUMNS))


def _column_bounds(reader: StatisticsReader, path: tuple[str, ...], counts: pa.ChunkedArray) -> ColumnBounds | None:
    stats = reader.column(path)
    if stats is None or stats.min is None or stats.max is None:
        return None
    low, high = _chunked(stats.min), _chunked(stats.max)
    nulls = None if stats.null_count is None else _chunked(stats.null_count)
    nulls_only = pa.chunked_array([pa.nulls(len(low), pa.bool_())]) if nulls is None else pc.equal(nulls, counts)
    return ranked(".".join(path), low, high, nulls_only, path_text(path))


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _storage(store: Store, snapshot: Snapshot) -> Storage | None:
    """Bytes by column from the footers of files of all sizes; ``None`` for files other than Parquet."""
    adds = snapshot.adds
    if snapshot.metadata.provider.lower() != "parquet" or not adds.num_rows:
        return None
    order = pc.sort_indices(adds["size"]).to_numpy()
    spread = np.unique(np.linspace(0, len(order) - 1, min(_FOOTERS, len(order))).round().astype(np.int64))
    paths = decoded_paths(adds["path"].take(pa.array(order[spread]))).to_pylist()
    names = {f.physical_name: f.name for f in snapshot.schema.fields}
    with ThreadPoolExecutor(_FOOTERS) as pool:
        by_file = list(pool.map(lambda path: _column_bytes(store, path, names), paths))
    columns: dict[str, int] = {}
    for one in by_file:
        for name, size in (one or {}).items():
            columns[name] = columns.get(name, 0) + size
    bad = sum(one is None for one in by_file)
    return Storage(columns, adds.num_rows, len(by_file) - bad, bad)


def _column_bytes(store: Store, path: str, names: Mapping[str, str]) -> dict[str, int] | None:
    """Compressed bytes of a file's columns, nested parts with their column; ``None`` for an unreadable file."""
    try:
        place, key = locate(store, path)
        with place.open_input(key) as source:
            file = open_parquet(source)
            if file.metadata.num_columns * file.metadata.num_row_groups > _CHUNKS:
                return None
            checked_footer(source, file)
            sizes: dict[str, int] = {}
            roots: dict[str, str | None] = {}
            for g in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(g)
                for i in range(group.num_columns):
                    chunk = group.column(i)
                    root = roots.setdefault(chunk.path_in_schema, _root(chunk.path_in_schema, names))
                    if root is not None:
                        sizes[root] = sizes.get(root, 0) + chunk.total_compressed_size
            return sizes
    except (TrilakeError, OSError, *DAMAGE):
        return None  # a read reports what is wrong; the facts of the other files are still true


def _root(path: str, names: Mapping[str, str]) -> str | None:
    """The column of a leaf: its name may contain dots."""
    if path in names:
        return names[path]
    ends = [i for i, c in enumerate(path) if c == "."]
    return next((names[path[:i]] for i in reversed(ends) if path[:i] in names), None)


# --- maintenance -----------------------------------------------------------------------------------------------------


def _transactions(snapshot: Snapshot) -> pa.Table:
    def number(value: Any) -> int | None:
        return value if isinstance(value, int) and abs(value) < 1 << 62 else None

    rows = [
        {"application": app, "version": number(txn.get("version")), "updated": number(txn.get("lastUpdated"))}
        for app, txn in snapshot.state.txns.items()
    ]
    return pa.Table.from_pylist(rows, TRANSACTIONS).sort_by([("updated", "descending"), ("application", "ascending")])


def _compaction(snapshot: Snapshot) -> Compaction | None:
    """What OPTIMIZE would rewrite, by its own plan; with clustering columns, only small files count."""
    try:
        limit = OptimizeRequest().limit(snapshot.metadata)
    except TrilakeError:
        return None
    everything: npt.NDArray[np.int64] = np.arange(snapshot.adds.num_rows)
    bins = compaction_bins(snapshot, everything, smaller_than=limit, limit=limit, share=DELETED_SHARE)
    if not bins:
        return Compaction(0, 0, 0, size_text(limit))
    chosen = np.concatenate(bins)
    sizes = pc.fill_null(snapshot.adds["size"], 0).to_numpy()
    return Compaction(len(chosen), len(bins), int(sizes[chosen].sum()), size_text(limit))
