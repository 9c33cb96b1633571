"""OPTIMIZE: rewrite the rows of a table into fewer, larger or clustered files.  No row changes.

The table and the request choose one of three ways::

    ZORDER BY given ----------------> Z-order: all files of a partition, along a Z-curve
    the table has CLUSTER BY -------> clustering: files of small cubes and outside cubes, along a Hilbert curve
    otherwise ----------------------> compaction: small files and those with many deleted rows, in their order

All actions have ``dataChange: false``, so appends do not conflict, and the change data feed and streams ignore the
commit.  If another writer has removed some of the files, only their bins are dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import orjson
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.common.text import columns_help, format_size, plural
from trilake.delta.commands.optimize.bins import (
    COLUMNS,
    CURVE,
    ID,
    MIN_CUBE_SIZE,
    TARGET_CUBE_SIZE,
    Cubes,
    Numbers,
    by_partition,
    compaction_bins,
    partition_keys,
    purge_bins,
    purgeable,
    sizes_of,
)
from trilake.delta.commands.optimize.curve_order import Curve, is_orderable
from trilake.delta.commands.optimize.metrics import (
    DeletionVectorStats,
    FileSizes,
    OptimizeMetrics,
    ZOrderFileStats,
    ZOrderStats,
)
from trilake.delta.commands.optimize.rewrite import MEMORY, RewriteOutcome, RewriteRequest, rewrite
from trilake.delta.commands.rows.row_changes import Runner, check_changeable, rewrite_plan, run_here
from trilake.delta.commit.transaction import CommitEvent
from trilake.delta.log.clustering import FEATURE, clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.partitions import PartitionKeys
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema_edit import format_path, split_names
from trilake.delta.scan.scan import matching_partitions, parse_table_filter
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter
from trilake.table.table import FilterLike

#: Default target size of a file in bytes.
TARGET_SIZE = 1 << 30
#: Share of deleted rows above which a file is rewritten.
DELETED_SHARE = 0.05


@dataclass(frozen=True)
class OptimizeRequest:
    """The caller's request; see :meth:`trilake.delta.table.ArrowDeltaTable.optimize`.

    ``auto`` marks an automatic compaction; ``predicates`` are the conditions of ``where`` for the history.
    """

    where: FilterLike | None = None
    zorder_by: tuple[str, ...] = ()
    target_size: int | None = None
    min_file_size: int | None = None
    deleted_share: float = DELETED_SHARE
    full: bool = False
    check_statistics: bool = True
    min_cube_size: int = MIN_CUBE_SIZE
    target_cube_size: int = TARGET_CUBE_SIZE
    memory: int = MEMORY
    auto: bool = False
    predicates: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("target_size", "min_file_size", "min_cube_size", "target_cube_size", "memory"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise InvalidArgumentError(f"{name} must be a positive number of bytes, got {value!r:.80}")
        if not 0 <= self.deleted_share <= 1:
            raise InvalidArgumentError(f"deleted_share must be between 0 and 1, got {self.deleted_share}")

    def limit(self, metadata: Metadata) -> int:
        table_size = TableProperties(metadata.configuration).size_bytes("delta.targetFileSize")
        return self.target_size or table_size or TARGET_SIZE


@dataclass(frozen=True)
class OptimizeResult(Displayed):
    """The result of an optimization: the version it committed, or the newest version if there was nothing to do.

    >>> import trilake
    >>> for n in range(2):
    ...     _ = trilake.write({"n": [n]}, "memory://doc-optimize-result", mode="append")
    >>> result = trilake.open("memory://doc-optimize-result").optimize()
    >>> result.version, result.files_removed, result.files_added, result.metrics.num_files_removed
    (2, 2, 1, 2)
    """

    version: int
    metrics: OptimizeMetrics = field(default_factory=OptimizeMetrics)

    @property
    def files_added(self) -> int:
        """The number of new files."""
        return self.metrics.num_files_added

    @property
    def files_removed(self) -> int:
        """The number of files that were replaced."""
        return self.metrics.num_files_removed

    def _title(self) -> str:
        return "Optimize" if self.metrics.num_files_removed else "Optimize: nothing to do"

    def _facts(self) -> list[tuple[str, object]]:
        m = self.metrics
        return [
            ("version", self.version),
            ("files removed", m.num_files_removed),
            ("files added", m.num_files_added),
            ("size removed", m.files_removed.total_size),
            ("size added", m.files_added.total_size),
            ("partitions", m.partitions_optimized),
            ("files considered", m.total_considered_files),
            ("seconds", f"{(m.end_time_ms - m.start_time_ms) / 1000:.2f}"),
        ]

    def __repr__(self) -> str:
        m = self.metrics
        if not m.num_files_removed:
            return f"<OPTIMIZE version {self.version}: nothing to do>"
        before, after = m.files_removed.total_size, m.files_added.total_size
        return (
            f"<OPTIMIZE version {self.version}: {plural(m.num_files_removed, 'file')} -> {m.num_files_added:,},"
            f" {format_size(before)} -> {format_size(after)};"
            f" {(m.end_time_ms - m.start_time_ms) / 1000:.2f} s>"
        )


def optimize(
    log: DeltaLog,
    request: OptimizeRequest,
    *,
    run: Runner = run_here,
    snapshot: Snapshot | None = None,
    only: Numbers | None = None,
) -> OptimizeResult:
    """Optimize a table and commit.

    ``only`` restricts the files, by position.  Raises ``InvalidArgumentError`` for a request that does not fit the
    table, and a ``ConflictError`` if other writers have removed all optimized files.
    """
    started = log.engine.runtime.clock_ms()
    snapshot = snapshot or log.snapshot()
    check_changeable(snapshot, "OPTIMIZE", removes=False)
    considered = _considered(snapshot, request)
    if only is not None:
        considered = np.intersect1d(considered, only)
    work, cubes = _work(snapshot, request, considered)
    outcome = rewrite(log, snapshot, work, run=run)
    metrics = rewrite_metrics(snapshot, outcome, len(considered), started)
    if request.zorder_by:
        merged = ZOrderFileStats(metrics.num_files_removed, metrics.files_removed.total_size)
        z_order = ZOrderStats("all", ZOrderFileStats(), merged, 0, merged, metrics.partitions_optimized)
        metrics = replace(metrics, z_order_stats=z_order)
    if cubes is not None:
        files = np.concatenate([np.empty(0, np.int64), *(work.bins[n] for n in outcome.bins)])
        metrics = replace(metrics, clustering_stats=cubes.stats(files, len(outcome.bins), full=request.full))
    return OptimizeResult(outcome.version, metrics)


def purge(
    log: DeltaLog,
    *,
    where: FilterLike | None = None,
    target_size: int | None = None,
    predicates: tuple[str, ...] | None = None,
    run: Runner = run_here,
) -> OptimizeResult:
    """Rewrite the files with deleted rows or dropped columns, of any size (``REORG TABLE ... APPLY (PURGE)``)."""
    started, snapshot = log.engine.runtime.clock_ms(), log.snapshot()
    check_changeable(snapshot, "REORG", removes=False)
    request = OptimizeRequest(where=where, target_size=target_size, predicates=predicates)
    considered = _considered(snapshot, request)
    numbers = np.intersect1d(considered, purgeable(log.store, snapshot))
    limit = request.limit(snapshot.metadata)
    work = RewriteRequest(
        purge_bins(snapshot, numbers, limit=limit),
        "REORG",
        {"predicate": _predicates(request), "applyPurge": True},
        limit,
    )
    outcome = rewrite(log, snapshot, work, run=run)
    return OptimizeResult(outcome.version, rewrite_metrics(snapshot, outcome, len(considered), started))


def _considered(snapshot: Snapshot, request: OptimizeRequest) -> Numbers:
    clustered = has_feature(snapshot.protocol, FEATURE)
    if clustered and request.where is not None:
        raise InvalidArgumentError(
            "OPTIMIZE of a table with liquid clustering does not support partition predicates",
            help=f"leave out the condition {request.where}",
            file=snapshot.uri,
            condition="DELTA_CLUSTERING_WITH_PARTITION_PREDICATE",
        )
    if clustered and request.zorder_by:
        raise InvalidArgumentError(
            "OPTIMIZE of a table with liquid clustering cannot specify ZORDER BY",
            help=f"leave out ZORDER BY ({', '.join(request.zorder_by)}): its clustering columns set the order",
            file=snapshot.uri,
            condition="DELTA_CLUSTERING_WITH_ZORDER_BY",
        )
    if request.full and not (clustered and clustering_columns(snapshot)):
        raise InvalidArgumentError(
            "OPTIMIZE FULL is only supported for tables with clustering columns",
            help="leave out FULL (full=True)",
            file=snapshot.uri,
            condition="DELTA_OPTIMIZE_FULL_NOT_SUPPORTED",
        )
    if request.where is None:
        return np.arange(snapshot.adds.num_rows, dtype=np.int64)
    filter = partition_filter(snapshot, request.where)
    if not snapshot.adds.num_rows:
        return np.array([], dtype=np.int64)
    return np.flatnonzero(np.asarray(matching_partitions(snapshot, snapshot.adds, filter)))


def _predicates(request: OptimizeRequest) -> list[str]:
    if request.predicates is not None:
        return list(request.predicates)
    return [] if request.where is None else [str(request.where)]


def _work(snapshot: Snapshot, request: OptimizeRequest, considered: Numbers) -> tuple[RewriteRequest, Cubes | None]:
    """What to rewrite; and the files by cube, if the table is clustered."""
    limit = request.limit(snapshot.metadata)
    parameters = {"predicate": _predicates(request), "auto": request.auto, "zOrderBy": [], "clusterBy": []}
    work = RewriteRequest((), "OPTIMIZE", parameters, limit, memory=request.memory)
    if request.zorder_by:
        paths = zorder_paths(snapshot, request.zorder_by, check_statistics=request.check_statistics)
        parameters["zOrderBy"] = list(request.zorder_by)
        return replace(work, bins=by_partition(snapshot, considered), curve=Curve("zorder", paths)), None
    columns = clustering_columns(snapshot)
    if columns and not request.auto:
        parameters["clusterBy"] = names = [format_path(c) for c in columns]
        if request.full:
            parameters["isFull"] = True
        cubes = Cubes(snapshot.adds, names)
        positions = cubes.chosen(full=request.full, min_size=request.min_cube_size)
        bins = cubes.bins(positions, target_size=max(request.min_cube_size, request.target_cube_size))
        curve = Curve("hilbert", tuple(tuple(c) for c in columns))
        columns_json = orjson.dumps(names).decode()
        tags = [{ID: snapshot.engine.runtime.new_id(), COLUMNS: columns_json, CURVE: curve.kind} for _ in bins]
        return replace(work, bins=bins, curve=curve, tags=tags), cubes
    bins = compaction_bins(
        snapshot, considered, smaller_than=request.min_file_size or limit, limit=limit, share=request.deleted_share
    )
    return replace(work, bins=bins), None


def rewrite_metrics(snapshot: Snapshot, outcome: RewriteOutcome, considered: int, started: int) -> OptimizeMetrics:
    """The metrics of the rewritten files; ``considered`` is the number of files that were considered."""
    added_sizes, removed_sizes = [a["size"] for a in outcome.added], [r["size"] or 0 for r in outcome.removed]
    vectors = [r["deletionVector"] for r in outcome.removed if r.get("deletionVector")]
    columns = len(snapshot.schema.fields)
    indexed = snapshot.properties.indexed_columns()
    return OptimizeMetrics(
        num_files_added=len(added_sizes),
        num_files_removed=len(removed_sizes),
        files_added=FileSizes.of(added_sizes),
        files_removed=FileSizes.of(removed_sizes),
        partitions_optimized=outcome.partitions,
        num_bins=len(outcome.bins),
        num_batches=len(outcome.bins),
        total_considered_files=considered,
        total_files_skipped=considered - len(removed_sizes),
        start_time_ms=started,
        end_time_ms=snapshot.engine.runtime.clock_ms(),
        total_cluster_parallelism=os.cpu_count() or 1,
        total_scheduled_tasks=len(outcome.bins),
        deletion_vector_stats=DeletionVectorStats(len(vectors), sum(v["cardinality"] or 0 for v in vectors))
        if vectors
        else None,
        num_table_columns=columns,
        num_table_columns_with_stats=columns if indexed < 0 else min(indexed, columns),
    )


def partition_filter(snapshot: Snapshot, where: FilterLike) -> Filter:
    """Parse a condition that reads only partition columns.

    Raises ``FilterError`` if it is invalid, ``InvalidArgumentError`` if it reads other columns.
    """
    filter = parse_table_filter(where, snapshot)
    assert filter is not None
    partition = [snapshot.schema.field(c).name for c in snapshot.metadata.partition_columns]
    other = sorted(set(filter.columns) - set(partition))
    if other:
        raise InvalidArgumentError(
            f"Predicate references non-partition column '{other[0]}'. Only the partition columns may be referenced: "
            f"[{', '.join(partition)}]",
            help="leave the condition out, or use partition columns: files are optimized as a whole",
            file=snapshot.uri,
            condition="DELTA_NON_PARTITION_COLUMN_REFERENCE",
        )
    return filter


def zorder_paths(snapshot: Snapshot, columns: Sequence[str], *, check_statistics: bool) -> tuple[tuple[str, ...], ...]:
    """The columns to Z-order by, as paths in the table's spelling.

    Raises ``InvalidArgumentError`` for partition columns, unknown or unorderable columns, and, with
    ``check_statistics``, for columns without statistics, which readers need to skip files.
    """
    partition = {c.lower() for c in snapshot.metadata.partition_columns}
    paths, without = list[tuple[str, ...]](), list[str]()
    plan = rewrite_plan(snapshot, "")
    indexed = plan.statistics.indexed(plan.stated_schema)
    for column in columns:
        names = (split_names(column) or [()])[0]
        if len(names) == 1 and names[0].lower() in partition:
            raise InvalidArgumentError(
                f"{column} is a partition column. Z-Ordering can only be performed on data columns",
                help="leave it out: all rows of a file have the same value",
                column=column,
                condition="DELTA_ZORDERING_ON_PARTITION_COLUMN",
            )
        fields = snapshot.schema.along(names)
        if not fields:
            raise InvalidArgumentError(
                f"Z-Ordering column {column} does not exist in data schema",
                help=columns_help(column, snapshot.schema.names),
                column=column,
                condition="DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
            )
        path, type_ = tuple(f.name for f in fields), fields[-1].type
        if not is_orderable(type_.arrow):
            raise InvalidArgumentError(
                f"Z-Ordering column {column} cannot be sorted: its type is {type_}", column=column
            )
        if path in paths:
            raise InvalidArgumentError(f"Z-Ordering column {column} is given twice", column=column)
        paths.append(path)
        if tuple(f.physical_name for f in fields) not in indexed:
            without.append(column)
    if without and check_statistics:
        raise InvalidArgumentError(
            f"Z-Ordering on [{', '.join(without)}] would be ineffective: no statistics are collected for these columns",
            help="raise delta.dataSkippingNumIndexedCols or name the columns in delta.dataSkippingStatsColumns; or"
            " disable this check with check_statistics=False (on Spark,"
            " spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled=false)",
            columns=", ".join(without),
            condition="DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
        )
    return tuple(paths)


# --- Auto compaction: compact small files after a commit --------------------------------------------------------------
# The table (``delta.autoOptimize.autoCompact``) or the writer enables it.  It compacts only partitions to which the
# commit added files and that have enough small files.  The commit stands whatever happens here: a failure is only
# logged, and a later commit tries again.


_log = logging.getLogger("trilake.delta")

PartitionValues: TypeAlias = Mapping[str, str | None] | None

PROPERTY = "delta.autoOptimize.autoCompact"
#: Legacy name of both that property and the one for optimized writes.
BOTH = "delta.autoOptimize"


@dataclass(frozen=True)
class AutoCompaction:
    """How a process compacts after its commits.

    ``enabled``, unless it is ``None``, overrides the table's property.  A partition is compacted if it has at least
    ``min_files`` files smaller than ``min_size`` bytes (half of ``max_size`` by default), into files of about
    ``max_size`` bytes.
    """

    enabled: bool | None = None
    min_files: int = 50
    max_size: int = 128 << 20
    min_size: int | None = None
    run: Runner = run_here

    @property
    def small(self) -> int:
        """Files below this many bytes are small."""
        return self.max_size // 2 if self.min_size is None else self.min_size

    def applies_to(self, metadata: Metadata) -> bool:
        if self.enabled is not None:
            return self.enabled
        conf = metadata.configuration
        return is_on(conf, BOTH) or conf.get(PROPERTY, "false").lower() in _ON


_ON = ("true", "auto", "legacy")


def compact_after_commit(event: CommitEvent, settings_of: Callable[[Metadata], AutoCompaction] | None) -> None:
    """Compact small files of the partitions that the commit touched.  Never raises.

    ``settings_of`` maps a table's metadata to its settings; ``None`` for the table's own properties.
    """
    log = event.log
    try:
        settings = AutoCompaction() if settings_of is None else settings_of(event.metadata)
        if settings.applies_to(event.metadata):
            adds = [a["add"] for a in event.plan.file_actions if "add" in a]
            # Only partitions with new rows.
            values = [a.get("partitionValues") for a in adds if a.get("dataChange", True)]
            snapshot = log.snapshot() if values else None
            if snapshot is not None and len(files := due(snapshot, values, settings)):
                request = OptimizeRequest(target_size=settings.max_size, min_file_size=settings.small, auto=True)
                optimize(log, request, run=settings.run, snapshot=snapshot, only=files)
    except Exception as e:  # noqa: BLE001 - the commit stands, whatever an engine raises; the next one tries again
        uri, version = log.store.uri, event.version
        _log.warning("version %d of %s is committed, but compaction after it failed: %s", version, uri, e)


def due(snapshot: Snapshot, values: Sequence[PartitionValues], settings: AutoCompaction) -> Numbers:
    """The positions of the small files in those partitions of ``values`` that have enough of them."""
    adds = snapshot.adds
    # A file of a cube must stay in its cube.
    loose = np.asarray(pc.is_null(adds["clusteringProvider"]))
    small = np.flatnonzero(loose & (sizes_of(adds) < settings.small))
    if len(small) < settings.min_files:
        return small[:0]
    keys = partition_keys(snapshot).take(small)
    enough = np.bincount(keys.codes) >= settings.min_files
    return small[enough[keys.codes] & keys.among(PartitionKeys.of_actions(values, keys.fields))]
