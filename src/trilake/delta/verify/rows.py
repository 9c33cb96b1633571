"""Read rows once for all checks of rows: bounds, nulls, rules, damage; and check statistics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import values_at
from trilake.delta.log.checkpoint_parts import FileColumns
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import PrimitiveType, StructType
from trilake.delta.rules.constraints import Check, table_checks, verify_checks, verify_not_null
from trilake.delta.scan.generated import GeneratedColumn, generated_columns
from trilake.delta.scan.read import read_positions
from trilake.delta.scan.scan import FileTask, ReadPlan, Scan, plan_scan
from trilake.delta.scan.statistics import StatisticsReader, record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.data_files import DAMAGED_HELP, DROP_DAMAGED, RECOMPUTE, stored_files
from trilake.errors import CorruptFileError, DeletionVectorError, ExpressionError, MissingFileError, TrilakeError
from trilake.expr import ColumnStats, evaluate_all
from trilake.expr.terms.engine import Query
from trilake.storage.base import Store
from trilake.table.findings import Finding, NotCheckedError, spread, unreadable

Path = tuple[str, ...]
#: Files whose rows are read concurrently.
_THREADS = 4
_NOW = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Rules:
    """The rules for rows that this process can evaluate; ``unchecked`` names the rules that only Spark can."""

    schema: StructType
    checks: tuple[Check, ...]
    generated: tuple[GeneratedColumn, ...]
    unchecked: tuple[str, ...]
    query: Query

    @classmethod
    def of(cls, table: DeltaContext) -> Rules:
        """The rules of a table.  Raises ``TrilakeError`` for an invalid one."""
        metadata = table.snapshot.metadata
        checks = table_checks(metadata.configuration, metadata.schema, _NOW)
        generated = generated_columns(metadata.schema, _NOW)
        unchecked = [f"{c.kind} {c.name}" for c in checks if c.condition is None]
        unchecked += [f"generated column {g.name}" for g in generated if g.expression is None]
        return cls(
            metadata.schema,
            tuple(c for c in checks if c.condition is not None),
            tuple(g for g in generated if g.expression is not None),
            tuple(unchecked),
            table.engine.query,
        )


@dataclass
class FileFacts:
    """Facts about the rows of one file."""

    bounds: dict[Path, tuple[pa.Scalar, pa.Scalar]] = field(default_factory=dict)
    nulls: dict[Path, int] = field(default_factory=dict)
    rows: int = 0
    broken: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass(frozen=True)
class RowFacts:
    """Facts about the files that were read, by their positions; bounds and nulls by column, one value per file."""

    files: Sequence[int]
    bounds: Mapping[Path, tuple[pa.Array, pa.Array]]
    nulls: Mapping[Path, pa.Array]
    broken: Sequence[tuple[int, str]]
    errors: Sequence[tuple[int, Exception]]
    rules_error: TrilakeError | None
    unchecked: tuple[str, ...]


def _gather(table: DeltaContext) -> RowFacts:
    snapshot = table.snapshot
    scan: Scan = plan_scan(snapshot)
    tasks = scan.tasks()
    numbers = spread(len(tasks), table.sample)
    rules, rules_error = None, None
    try:
        rules = Rules.of(table)
    except TrilakeError as e:
        rules_error = e
    columns = columns_with_statistics(snapshot)

    def read(number: int) -> FileFacts:
        return _file(table.store, tasks[number], scan.plan, columns, rules)

    with ThreadPoolExecutor(_THREADS, "trilake-verify") as pool:
        facts = list(pool.map(read, numbers))
    bounds = {}
    for path, type_ in columns.items():
        if all(path not in f.bounds for f in facts):
            continue
        low, high = zip(*(f.bounds.get(path, (None, None)) for f in facts), strict=True)
        bounds[path] = (pa.array(low, type_.arrow), pa.array(high, type_.arrow))
    nulls = {p: pa.array([f.nulls.get(p) if f.error is None else None for f in facts], pa.int64()) for p in columns}
    broken = [(n, b) for n, f in zip(numbers, facts, strict=True) for b in f.broken]
    errors = [(n, f.error) for n, f in zip(numbers, facts, strict=True) if f.error is not None]
    return RowFacts(numbers, bounds, nulls, broken, errors, rules_error, () if rules is None else rules.unchecked)


def columns_with_statistics(snapshot: Snapshot) -> dict[Path, PrimitiveType]:
    """The columns that may have statistics, by display path."""
    partition = snapshot.metadata.partition_columns
    leaves = ((path, f.type) for path, f in snapshot.schema.leaves() if path[0] not in partition)
    return {path: type_ for path, type_ in leaves if isinstance(type_, PrimitiveType)}


def _file(
    store: Store, task: FileTask, plan: ReadPlan, columns: Mapping[Path, PrimitiveType], rules: Rules | None
) -> FileFacts:
    facts = FileFacts(nulls=dict.fromkeys(columns, 0))
    broken: dict[str, str] = {}
    try:
        for _, batch in read_positions(store, task, plan):
            facts.rows += batch.num_rows
            for path in columns:
                _note(facts, path, batch)
            for key, message in () if rules is None else _broken(rules, batch):
                broken.setdefault(key, message)
    except (TrilakeError, OSError, pa.ArrowException, ValueError) as e:
        facts.error = e
    facts.broken = list(broken.values())
    return facts


def _note(facts: FileFacts, path: Path, batch: pa.RecordBatch) -> None:
    values = values_at(batch, path)
    facts.nulls[path] += values.null_count
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if values.null_count == len(values):
        return
    try:
        bounds = pc.min_max(values)
    except pa.ArrowNotImplementedError:
        return
    low, high = bounds["min"], bounds["max"]
    before = facts.bounds.get(path)
    if before is not None:
        low = min(low, before[0], key=_key)
        high = max(high, before[1], key=_key)
    facts.bounds[path] = (low, high)


def _key(scalar: pa.Scalar) -> Any:
    """A sort key in Arrow's order, also for values outside Python's range."""
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else value


def _broken(rules: Rules, batch: pa.RecordBatch) -> Generator[tuple[str, str], None, None]:
    """The rules that a batch violates, each with a key and a description of its first violation."""
    try:
        verify_not_null(batch, rules.schema)
    except TrilakeError as e:
        yield "not null", e.message
    for check in rules.checks:
        try:
            verify_checks([check], batch)
        except TrilakeError as e:
            yield f"{check.kind} {check.name}", e.message
    for column in rules.generated:
        assert column.expression is not None
        try:
            computed = evaluate_all([column.expression], batch)[0].combine_chunks()
            column.verify(batch.column(batch.schema.get_field_index(column.name)), computed, batch, rules.query)
        except TrilakeError as e:
            yield f"generated {column.name}", e.message


def readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every row can be read: pages, their checksums, types and deleted rows."""
    facts = table.once(_gather)
    for number, error in facts.errors:
        if isinstance(error, MissingFileError) and stored_files(table)[number].size is None:
            continue  # reported by another check
        file = table.adds["file"][number].as_py()
        failure = unreadable("delta.rows-unreadable", error, file=file, version=table.version)
        damaged = isinstance(error, CorruptFileError) and not isinstance(error, DeletionVectorError)
        help = DAMAGED_HELP if damaged else failure.help or "restore the file from a backup"
        yield replace(failure, help=help, repair=DROP_DAMAGED if damaged else None)
    return len(facts.files)


def rules_hold(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every row satisfies NOT NULL, CHECK constraints, invariants and generated columns."""
    facts = table.once(_gather)
    for number, message in facts.broken:
        yield table.finding(
            "delta.constraint-violated",
            message,
            "update or delete the rows that violate the rule, or drop the rule",
            file=table.adds["file"][number].as_py(),
        )
    if facts.rules_error is not None:
        if isinstance(facts.rules_error, ExpressionError):
            raise NotCheckedError(facts.rules_error.message)
        yield unreadable("delta.constraint-violated", facts.rules_error)
    if facts.unchecked:
        raise NotCheckedError(f"only Spark can evaluate {', '.join(facts.unchecked)}")
    return len(facts.files)


# --- statistics ------------------------------------------------------------------------------------------------------

_HELP = "recompute the statistics (trilake.repair): a filter may skip the file although it has matching rows"


def well_formed(table: DeltaContext) -> Generator[Finding, None, int]:
    """Statistics are JSON with a number of rows, which is mandatory for a file with a deletion vector."""
    adds = table.adds
    stats = adds["stats"]
    json_strings = pc.and_(pc.is_valid(stats), pc.not_equal(pc.fill_null(stats, ""), ""))
    valid = table.engine.query(
        "select coalesce(json_valid(s) and json_type(case when json_valid(s) then s end) = 'OBJECT', false) as ok"
        " from t",
        t=pa.table({"s": stats}),
    )["ok"]
    wrong = partial(table.of_files, code="delta.statistics-malformed", help=_HELP, repair=RECOMPUTE)
    yield from wrong(pc.and_(json_strings, pc.invert(valid)), message="the statistics are not a JSON object")
    counts = record_counts(adds, table.engine.query)
    vectors = pc.is_valid(pc.struct_field(adds["deletionVector"], "storageType"))
    unknown = pc.and_(pc.is_null(counts), vectors)
    if not FileColumns.of(table.snapshot).have_stats:  # as the table's properties ask, none survive a checkpoint
        unknown = pc.and_(unknown, json_strings)
    yield from wrong(unknown, message="the file has a deletion vector, but its statistics have no numRecords")
    cardinality = pc.struct_field(adds["deletionVector"], "cardinality")
    more = pc.greater(cardinality, counts)
    yield from wrong(more, message="more rows are deleted than the statistics count")
    return int(pc.sum(json_strings).as_py() or 0)


def bounds(table: DeltaContext) -> Generator[Finding, None, int]:
    """No row lies outside the bounds that its file's statistics state."""
    facts = table.once(_gather)
    adds = table.adds.take(pa.array(facts.files, pa.int64()))
    for path, stats in _columns(table, adds):
        actual = facts.bounds.get(path)
        if actual is None:
            continue
        for bound, value, less in ((stats.min, actual[0], True), (stats.max, actual[1], False)):
            if bound is None:
                continue
            beyond = (pc.less if less else pc.greater)(value.cast(bound.type), bound)
            for number in np.flatnonzero(np.asarray(pc.fill_null(beyond, False))).tolist():
                side = "least" if less else "greatest"
                true, bound_value = value[number].as_py(), bound[number].as_py()
                message = f"the {side} value is {true!r:.100}, but the statistics say {bound_value!r:.100}"
                yield _of_column(table, "delta.statistics-bounds", message, adds, number, path)
    return len(facts.files)


def nulls(table: DeltaContext) -> Generator[Finding, None, int]:
    """The null counts in statistics are correct."""
    facts = table.once(_gather)
    adds = table.adds.take(pa.array(facts.files, pa.int64()))
    # If a file has deleted rows, the count may include them.
    exact = pc.is_null(pc.struct_field(adds["deletionVector"], "storageType"))
    for path, stats in _columns(table, adds):
        actual = facts.nulls.get(path)
        if actual is None or stats.null_count is None:
            continue
        null_counts = stats.null_count
        wrong = pc.and_(pc.fill_null(pc.not_equal(null_counts, actual), False), exact)
        for number in np.flatnonzero(np.asarray(wrong)).tolist():
            true, stated = actual[number].as_py(), null_counts[number].as_py()
            message = f"{true:,} values are null, but the statistics say {stated:,}"
            yield _of_column(table, "delta.statistics-nulls", message, adds, number, path)
    return len(facts.files)


def _columns(table: DeltaContext, adds: pa.Table) -> Iterator[tuple[tuple[str, ...], ColumnStats]]:
    snapshot = table.snapshot
    partition = snapshot.metadata.partition_columns
    reader = StatisticsReader(adds, snapshot.schema, partition, table.engine.query)
    if not adds.num_rows:
        return
    paths = list(columns_with_statistics(snapshot))
    reader.read(paths)
    for path in paths:
        stats = reader.column(path)
        if stats is not None:
            yield path, stats


def _of_column(table: DeltaContext, code: str, message: str, adds: pa.Table, number: int, path: Path) -> Finding:
    file, column = adds["file"][number].as_py(), ".".join(path)
    return table.finding(code, message, _HELP, file=file, column=column, repair=RECOMPUTE)
