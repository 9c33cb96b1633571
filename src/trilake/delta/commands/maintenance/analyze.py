"""ANALYZE TABLE: recompute statistics of data files from their rows, as one commit that changes no row.

Protocol: *Per-file Statistics*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, add_action, commit
from trilake.delta.files.file_statistics import RowStatistics, StatisticsPlan
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.protocol.column_mapping import physical_schema, to_physical
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.read import read_positions
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan, read_plan
from trilake.delta.scan.statistics import IN_STATISTICS, StatisticsReader
from trilake.errors import InvalidArgumentError
from trilake.storage.base import Store


@dataclass(frozen=True)
class StatisticsResult(Displayed):
    """The resulting version, and the number of files whose statistics changed."""

    version: int
    num_files: int


def compute_statistics(
    log: DeltaLog, *, paths: Sequence[str] | None = None, everything: bool = False, run: Runner = run_here
) -> StatisticsResult:
    """Recompute statistics of files from their rows.  Without files to recompute, there is no commit.

    ``paths`` are the decoded paths of the files; by default the files that lack the number of rows, or statistics of a
    column that the table's properties name; with ``everything``, all files.

    Raises a ``ConflictError`` if another writer has removed or changed one of the files.
    """
    now = log.snapshot()
    now.check_writable()
    if paths is not None:
        files = now.adds.filter(pc.is_in(decoded_paths(now.adds["path"]), pa.array(list(paths), pa.string())))
    else:
        files = now.adds if everything else now.adds.filter(_lacking(now))
    if not files.num_rows:
        return StatisticsResult(now.version, 0)
    tasks = {t.path: t for t in plan_scan(now).tasks()}
    names = decoded_paths(files["path"]).to_pylist()
    job = _Job.of(now)
    statistics = dict(run(partial(job.statistics, log.store), [tasks[name] for name in names]))
    # Another writer may have written the files, so how their own bounds treat NaN is unknown.
    tags = dict.fromkeys(job.which.tags(physical_schema(job.columns, job.mode)), IN_STATISTICS)
    actions = [
        add_action(
            {**row, "tags": {**tags, **dict(row["tags"] or ())} or None}, dataChange=False, stats=statistics[name]
        )
        for name, row in zip(names, files.to_pylist(), strict=True)
    ]
    concurrent_paths = frozenset(files["path"].to_pylist())
    plan = CommitPlan(
        operation="COMPUTE STATS",
        parameters={"numFiles": str(len(actions))},
        file_actions=actions,
        metrics={"numUpdatedFiles": len(actions)},
        # Do not add a file again that another writer has removed or changed.
        read=ReadSet(files=concurrent_paths, removed=concurrent_paths, isolation="Serializable"),
    )
    return StatisticsResult(commit(log, now, plan), len(actions))


def check_columns(snapshot: Snapshot, columns: Sequence[tuple[str, ...]]) -> None:
    """Check that the table keeps statistics of these columns.

    Raises ``InvalidArgumentError`` if it does not, or if a column is unknown.
    """
    has_statistics = {tuple(p.lower() for p in name): has for name, has in _statistics_columns(snapshot).items()}
    has_statistics.update({(c.lower(),): True for c in snapshot.metadata.partition_columns})
    for path in columns:
        has = has_statistics.get(tuple(p.lower() for p in path))
        if has:
            continue
        name = ".".join(path)
        if has is None and not any(k[: len(path)] == tuple(p.lower() for p in path) for k in has_statistics):
            raise InvalidArgumentError(
                f"the table has no column {name!r}", file=snapshot.uri, column=name, condition="COLUMN_NOT_FOUND"
            )
        raise InvalidArgumentError(
            f"no statistics are collected for column {name}",
            help="add the column to the table property delta.dataSkippingStatsColumns",
            file=snapshot.uri,
            column=name,
        )


def _statistics_columns(snapshot: Snapshot) -> dict[tuple[str, ...], bool]:
    """The leaf columns of data files, and whether the table's properties ask for their statistics."""
    job = _Job.of(snapshot)
    indexed = set(job.which.indexed(physical_schema(job.columns, job.mode)))
    fields = {path: job.columns.along(path) for path, _ in job.columns.leaves()}
    return {
        p: tuple(f.name if job.mode == "none" else f.physical_name for f in fs) in indexed for p, fs in fields.items()
    }


def _lacking(snapshot: Snapshot) -> pa.ChunkedArray:
    adds = snapshot.adds
    reader = StatisticsReader(adds, snapshot.schema, tuple(snapshot.metadata.partition_columns), snapshot.engine.query)
    columns = [path for path, is_indexed in _statistics_columns(snapshot).items() if is_indexed]
    reader.read(columns)
    lacking = reader.record_counts().is_null()
    for path in columns:
        stats = reader.column(path)
        if stats is not None and stats.null_count is not None:
            lacking = pc.or_(lacking, stats.null_count.is_null())
    return lacking


@dataclass(frozen=True)
class _Job:
    """Reads a file and computes its statistics, in any process."""

    plan: ReadPlan
    columns: StructType
    mode: str
    which: StatisticsPlan

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Job:
        metadata = snapshot.metadata
        columns = StructType(tuple(f for f in snapshot.schema.fields if f.name not in metadata.partition_columns))
        which = StatisticsPlan.of(metadata.configuration, snapshot.schema)
        return cls(read_plan(snapshot, columns.names, None), columns, metadata.column_mapping_mode, which)

    def statistics(self, store: Store, task: FileTask) -> tuple[str, str]:
        """The file's path and ``stats`` JSON; deleted rows count, as in a newly written file."""
        whole = FileTask(task.path, task.size, task.partition_values)
        statistics = RowStatistics(physical_schema(self.columns, self.mode), self.which)
        for _, batch in read_positions(store, whole, self.plan):
            statistics.add(to_physical(pa.Table.from_batches([batch]), self.columns, self.mode))
        stats = orjson.loads(statistics.json())
        return task.path, orjson.dumps(stats | ({"tightBounds": False} if task.vector is not None else {})).decode()
