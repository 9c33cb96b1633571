"""Statistics of data files computed again from their rows, as one commit that changes no row: ANALYZE TABLE.

Protocol: *Per-file Statistics*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.add_actions import add_action
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import commit
from trilake.delta.files.file_statistics import StatisticsPlan
from trilake.delta.files.row_statistics import RowStatistics
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.column_mapping import physical_schema, to_physical
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.read import read_positions
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan, read_plan
from trilake.delta.scan.statistics import IN_STATISTICS, StatisticsReader
from trilake.errors import InvalidArgumentError
from trilake.storage.base import Store


@dataclass(frozen=True)
class StatisticsResult(Displayed):
    """The version that there is afterwards, and how many files have other statistics in it."""

    version: int
    num_files: int


def compute_statistics(
    log: DeltaLog, *, paths: Sequence[str] | None = None, everything: bool = False, run: Runner = run_here
) -> StatisticsResult:
    """Compute statistics of files again from their rows; without such a file there is no commit.

    Parameters
    ----------
    log: the table's log.
    paths: decoded paths of the files; ``None`` for those whose statistics lack the number of rows or anything of a
        column that the table's properties say they have.
    everything: all files instead.
    run: who reads many files.

    Raises a ``ConflictError`` where another writer removed or changed one of the files in the meantime.
    """
    now = log.snapshot()
    check_writable(now.protocol, now.metadata, uri=now.uri, version=now.version)
    if paths is not None:
        files = now.adds.filter(pc.is_in(decoded_paths(now.adds["path"]), pa.array(list(paths), pa.string())))
    else:
        files = now.adds if everything else now.adds.filter(_lacking(now))
    if not files.num_rows:
        return StatisticsResult(now.version, 0)
    tasks = {t.path: t for t in plan_scan(now).tasks()}
    names = decoded_paths(files["path"]).to_pylist()
    job = _Job.of(log.store, now)
    texts = dict(run(job, [tasks[name] for name in names]))
    # The files may be someone else's, whose own bounds we know nothing of.
    tags = dict.fromkeys(job.which.tags(physical_schema(job.columns, job.mode)), IN_STATISTICS)
    actions = [
        add_action({**row, "tags": {**tags, **dict(row["tags"] or ())} or None}, dataChange=False, stats=texts[name])
        for name, row in zip(names, files.to_pylist(), strict=True)
    ]
    touched = frozenset(files["path"].to_pylist())
    plan = CommitPlan(
        operation="COMPUTE STATS",
        parameters={"numFiles": str(len(actions))},
        file_actions=actions,
        metrics={"numUpdatedFiles": len(actions)},
        # A file that another writer removes or changes in the meantime must not come back.
        read=ReadSet(files=touched, removed=touched, isolation="Serializable"),
    )
    return StatisticsResult(commit(log, now, plan).version, len(actions))


def check_columns(snapshot: Snapshot, columns: Sequence[tuple[str, ...]]) -> None:
    """See that statistics are of these columns, too.

    Raises ``InvalidArgumentError`` for a column that the table has not, or of which it keeps no statistics.
    """
    known = {tuple(p.lower() for p in shown): has for shown, has in _statistics_columns(snapshot).items()}
    known.update({(c.lower(),): True for c in snapshot.metadata.partition_columns})
    for path in columns:
        has = known.get(tuple(p.lower() for p in path))
        if has:
            continue
        name = ".".join(path)
        if has is None and not any(k[: len(path)] == tuple(p.lower() for p in path) for k in known):
            raise InvalidArgumentError(
                f"the table has no column {name}", file=snapshot.uri, column=name, condition="COLUMN_NOT_FOUND"
            )
        raise InvalidArgumentError(
            f"the table keeps no statistics of column {name}",
            help="list the columns to collect statistics for in the property delta.dataSkippingStatsColumns",
            file=snapshot.uri,
            column=name,
        )


def _statistics_columns(snapshot: Snapshot) -> dict[tuple[str, ...], bool]:
    """The columns of data files that are not structs, and whether the table's properties say statistics of them."""
    metadata, own = snapshot.metadata, _own_columns(snapshot)
    which = StatisticsPlan.of(metadata.configuration, snapshot.schema)
    wanted = set(which.wanted(physical_schema(own, metadata.column_mapping_mode)))
    mapped = metadata.column_mapping_mode != "none"
    return {shown: inside in wanted for shown, inside in _leaves(own, (), (), mapped=mapped)}


def _lacking(snapshot: Snapshot) -> pa.ChunkedArray:
    """Whether a file's statistics do not state how many rows it has, or of a column how many values are null."""
    adds = snapshot.adds
    reader = StatisticsReader(adds, snapshot.schema, tuple(snapshot.metadata.partition_columns))
    columns = [shown for shown, wanted in _statistics_columns(snapshot).items() if wanted]
    reader.read(columns)
    lacking = reader.record_counts().is_null()
    for shown in columns:
        stats = reader.column(shown)
        if stats is not None and stats.null_count is not None:
            lacking = pc.or_(lacking, stats.null_count.is_null())
    return lacking


def _own_columns(snapshot: Snapshot) -> StructType:
    """The columns that data files hold."""
    inside = snapshot.metadata.partition_columns
    return StructType(tuple(f for f in snapshot.schema.fields if f.name not in inside))


def _leaves(
    struct: StructType, shown: tuple[str, ...], physical: tuple[str, ...], *, mapped: bool
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The columns that are not structs, by their names and by those in files."""
    for f in struct.fields:
        path, inside = (*shown, f.name), (*physical, f.physical_name if mapped else f.name)
        if isinstance(f.type, StructType):
            yield from _leaves(f.type, path, inside, mapped=mapped)
        else:
            yield path, inside


@dataclass(frozen=True)
class _Job:
    """Reads a file and says its statistics, wherever that is."""

    store: Store
    plan: ReadPlan
    columns: StructType
    mode: str
    which: StatisticsPlan

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot) -> _Job:
        """The job for the files of a version."""
        metadata, own = snapshot.metadata, _own_columns(snapshot)
        which = StatisticsPlan.of(metadata.configuration, snapshot.schema)
        return cls(store, read_plan(snapshot, own.names, None), own, metadata.column_mapping_mode, which)

    def __call__(self, task: FileTask) -> tuple[str, str]:
        """The file's path and the text of its ``stats``; deleted rows count, as they do where a file is written."""
        whole = FileTask(task.path, task.size, task.partition_values)
        statistics: RowStatistics | None = None
        for _, batch in read_positions(self.store, whole, self.plan):
            rows = to_physical(pa.Table.from_batches([batch]), self.columns, self.mode)
            statistics = statistics or RowStatistics(rows.schema, self.which)
            statistics.add(rows)
        if statistics is None:
            statistics = RowStatistics(physical_schema(self.columns, self.mode), self.which)
        stats = orjson.loads(statistics.json())
        return task.path, orjson.dumps(stats | ({"tightBounds": False} if task.vector is not None else {})).decode()
