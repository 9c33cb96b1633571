"""Facts about a Delta table for a report: from its snapshot, newest commits and a few footers, without reading rows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import format_size, format_time, plain, plural
from trilake.delta.commands.maintenance.vacuum import RETENTION
from trilake.delta.commands.optimize.bins import compaction_bins
from trilake.delta.commands.optimize.optimize import DELETED_SHARE, OptimizeRequest
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.commit_times import monotonic
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.protocol.actions import Metadata, parse_rare
from trilake.delta.protocol.features import features_of
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.protocol.property_values import duration_ms
from trilake.delta.protocol.schema import PrimitiveType, StructType
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.scan.read import locate
from trilake.delta.scan.statistics import StatisticsReader, record_counts
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TrilakeError
from trilake.parquet.files import DAMAGE, checked_footer, open_parquet
from trilake.storage.base import ObjectMeta, Store
from trilake.table.findings import spread
from trilake.table.report_facts import (
    COMMITS,
    FILES,
    TRANSACTIONS,
    Bounds,
    ColumnBounds,
    Commits,
    Compaction,
    Facts,
    PartitionColumn,
    SchemaChange,
    Storage,
    Tombstones,
    ranked,
)

#: Limits: files whose bounds are read, columns of the bounds, and files whose footers are read.
_SAMPLE, _COLUMNS, _FOOTERS = 20_000, 24, 12
#: The most column chunks summed up per footer.
_CHUNKS = 100_000


def delta_facts(table: ArrowDeltaTable) -> Facts:
    """The facts of a table at its version.  Raises the errors of reading a log."""
    snapshot, log = table.snapshot, table.log
    metadata, protocol = snapshot.metadata, snapshot.protocol
    now_ms = log.engine.runtime.clock_ms()
    counts = record_counts(snapshot.adds, log.engine.query)
    commits, schema_changes, notes = _history(log, snapshot)
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
        commits=commits,
        partitions=_partitions(snapshot),
        tombstones=_tombstones(table, now_ms),
        bounds=_bounds(snapshot, counts),
        storage=_storage(log.store, snapshot),
        schema_changes=schema_changes,
        transactions=_transactions(snapshot),
        compaction=_compaction(snapshot),
        has_vectors=True,
        clustering=tuple(".".join(c) for c in clustering_columns(snapshot)),
        properties=dict(sorted(metadata.configuration.items())),
        features=tuple(sorted(features_of(protocol))),
        protocol=f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        notes=notes,
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
    """Removed files that are not live: a file with a new deletion vector has a tombstone but stays."""
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
    reader = StatisticsReader(
        adds.select(["stats", "partitionValues"]), snapshot.schema, partition, snapshot.engine.query
    )
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
    nulls = pa.nulls(len(counts), pa.int64()) if stats.null_count is None else stats.null_count
    low, high, nulls_only = (
        v if isinstance(v, pa.ChunkedArray) else pa.chunked_array([v])
        for v in (stats.min, stats.max, pc.equal(nulls, counts))
    )
    return ranked(".".join(path), low, high, nulls_only, format_path(path))


def _storage(store: Store, snapshot: Snapshot) -> Storage | None:
    """Bytes by column from the footers of files of all sizes; ``None`` for files other than Parquet."""
    adds = snapshot.adds
    if snapshot.metadata.provider.lower() != "parquet" or not adds.num_rows:
        return None
    order = pc.sort_indices(adds["size"]).to_numpy()
    paths = decoded_paths(adds["path"].take(pa.array(order[spread(len(order), _FOOTERS)]))).to_pylist()
    names = {f.physical_name: f.name for f in snapshot.schema.fields}
    with ThreadPoolExecutor(_FOOTERS) as pool:
        return Storage.measured(adds.num_rows, pool.map(lambda path: _column_bytes(store, path, names), paths))


def _column_bytes(store: Store, path: str, names: Mapping[str, str]) -> dict[str, int] | None:
    """Compressed bytes of a file's columns, nested parts with their column; ``None`` for an unreadable file."""
    try:
        place, key = locate(store, path)
        with place.open_input(key) as source:
            file = open_parquet(source)
            if file.metadata.num_columns * file.metadata.num_row_groups > _CHUNKS:
                return None
            chunks = [chunk for group in checked_footer(source, file) for chunk in group]
    except (TrilakeError, OSError, *DAMAGE):
        return None  # a read reports what is wrong; the facts about other files stay true
    sizes: dict[str, int] = {}
    roots = {path: _root(path, names) for path in {chunk.path for chunk in chunks}}
    for chunk in chunks:
        if (root := roots[chunk.path]) is not None:
            sizes[root] = sizes.get(root, 0) + chunk.stored_size
    return sizes


def _root(path: str, names: Mapping[str, str]) -> str | None:
    """The column of a leaf; its name may contain dots."""
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
    """The files that OPTIMIZE would plan to rewrite; with clustering columns, only small files."""
    try:
        limit = OptimizeRequest().limit(snapshot.metadata)
    except TrilakeError:
        return None
    everything: npt.NDArray[np.int64] = np.arange(snapshot.adds.num_rows)
    bins = compaction_bins(snapshot, everything, smaller_than=limit, limit=limit, share=DELETED_SHARE)
    if not bins:
        return Compaction(0, 0, 0, format_size(limit))
    chosen = np.concatenate(bins)
    sizes = pc.fill_null(snapshot.adds["size"], 0).to_numpy()
    return Compaction(len(chosen), len(bins), int(sizes[chosen].sum()), format_size(limit))


# --- The newest commits of a Delta table and their schema changes, read with bounded effort ---------------------------

#: Limits: commits to read, bytes up to which a commit is read whole, and bytes from the start of a larger one, where
#: all Delta writers put the actions that are not file actions.
_COMMITS, _WHOLE, _BEGINNING = 1_000, 1 << 22, 1 << 16
#: The most bytes read of all commits together.
_BUDGET = 1 << 25
#: The most column changes listed per version.
_CHANGES = 20

_SHOWN_METRICS = {
    "numOutputRows": "row written",
    "numFiles": "file",
    "numAddedFiles": "file added",
    "numRemovedFiles": "file removed",
    "numDeletedRows": "row deleted",
    "numUpdatedRows": "row updated",
    "numTargetRowsInserted": "row inserted",
    "numTargetRowsUpdated": "row updated",
    "numTargetRowsDeleted": "row deleted",
}


def _history(log: DeltaLog, snapshot: Snapshot) -> tuple[Commits, tuple[SchemaChange, ...], tuple[str, ...]]:
    """The newest commits up to the snapshot's version, their column changes, and notes about both."""
    commits = log.commits(end=snapshot.version)
    chosen, spent = list[tuple[int, ObjectMeta]](), 0
    for version, file in reversed(commits[-_COMMITS:]):
        spent += file.size if file.size <= _WHOLE else _BEGINNING
        if spent > _BUDGET and chosen:
            break
        chosen.append((version, file))
    chosen.reverse()
    actions, damaged = _actions(log, chosen)
    times = _times(chosen, actions)
    note = f"{plural(damaged, 'commit')} could not be read, and {'is' if damaged == 1 else 'are'} shown without details"
    table = pa.Table.from_pylist(
        [_row(v, times[v], actions.get(v, {}).get("commitInfo") or {}) for v, _ in reversed(chosen)], COMMITS
    )
    complete = bool(chosen) and chosen[0][0] == 0
    changes = _schema_changes(actions, times, complete=complete)
    return Commits(table, len(commits) - len(chosen), len(commits)), changes, (note,) if damaged else ()


def _actions(log: DeltaLog, commits: list[tuple[int, ObjectMeta]]) -> tuple[dict[int, dict[str, Any]], int]:
    small = [(v, c.key) for v, c in commits if c.size <= _WHOLE]
    contents = [(v, key, data) for (v, key), data in zip(small, log.read_files([key for _, key in small]), strict=True)]
    for version, file in ((v, c) for v, c in commits if c.size > _WHOLE):
        start = log.store.read_range(file.key, 0, _BEGINNING).to_pybytes()
        contents.append((version, file.key, pa.py_buffer(start[: start.rfind(b"\n") + 1] or start)))
    actions: dict[int, dict[str, Any]] = {}
    damaged = 0
    for one in contents:
        try:
            for version, kind, data in parse_rare([one]).rare:
                if kind in ("commitInfo", "metaData") and isinstance(data, Mapping):
                    actions.setdefault(version, {})[kind] = data
        except TrilakeError:
            damaged += 1
    return actions, damaged


def _times(commits: list[tuple[int, ObjectMeta]], actions: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """When each commit happened: its in-commit timestamp or file time; never decreasing."""
    stated = [(actions.get(v, {}).get("commitInfo") or {}).get("inCommitTimestamp") for v, _ in commits]
    times = [
        t if isinstance(t, int) and abs(t) < 1 << 53 else file.modified_ms
        for t, (_, file) in zip(stated, commits, strict=True)
    ]
    return dict(zip((v for v, _ in commits), monotonic(times), strict=True))


def _row(version: int, time_ms: int, info: Mapping[str, Any]) -> dict[str, Any]:
    def text(name: str) -> str | None:
        value = info.get(name)
        return plain(value) if isinstance(value, str) and value else None

    stated = info.get("operationMetrics")
    metrics = stated if isinstance(stated, Mapping) else {}
    counts = [_counted(metrics[k], what) for k, what in _SHOWN_METRICS.items() if str(metrics.get(k, "0")) != "0"]
    return {
        "version": version,
        "timestamp": time_ms,
        "operation": text("operation"),
        "by": text("userName") or text("engineInfo"),
        "metrics": ", ".join(counts) or None,
    }


def _counted(value: object, what: str) -> str:
    digits, (noun, _, verb) = str(value), what.partition(" ")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 19
    number = f"{int(digits):,}" if is_number else plain(digits, 20)
    return f"{number} {noun if number == '1' else f'{noun}s'} {verb}".rstrip()


# --- columns ---------------------------------------------------------------------------------------------------------


def _schema_changes(
    actions: Mapping[int, Mapping[str, Any]], times: Mapping[int, int], *, complete: bool
) -> tuple[SchemaChange, ...]:
    """Versions that changed columns, oldest first; the first version read counts only if it is version 0."""
    schema_changes: list[SchemaChange] = []
    before: dict[str, str] | None = {} if complete else None
    for version in sorted(actions):
        if "metaData" not in actions[version]:
            continue
        try:
            columns = _columns(Metadata.from_json(actions[version]["metaData"], version=version).schema)
        except TrilakeError:
            continue  # an unreadable version is not a change
        if before is not None and columns != before:
            changes = _changes(before, columns)
            schema_changes.append(SchemaChange(version, format_time(times[version]), changes))
        before = columns
    return tuple(schema_changes)


def _columns(type_: StructType, above: str = "") -> dict[str, str]:
    types: dict[str, str] = {}
    for f in type_.fields:
        nested = f.type if isinstance(f.type, StructType) else None
        types[above + f.name] = ("struct" if nested else str(f.type)) + ("" if f.nullable else " not null")
        types |= _columns(nested, f"{above}{f.name}.") if nested else {}
    return types


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    out = [f"added {plain(c)}: {plain(t)}" for c, t in after.items() if c not in before]
    out += [f"dropped {plain(c)}" for c in before if c not in after]
    out += [f"{plain(c)}: {plain(before[c])} -> {plain(t)}" for c, t in after.items() if before.get(c, t) != t]
    if not out:
        out = ["reordered columns"]
    more = len(out) - _CHANGES
    return (*out[:_CHANGES], *((f"and {plural(more, 'more change')}",) if more > 0 else ()))
