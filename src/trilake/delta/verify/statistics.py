"""Checks of statistics: readable, and consistent with the rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.scan.statistics import StatisticsReader, record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.footers import RECOMPUTE
from trilake.delta.verify.rows import columns_with_statistics, row_facts
from trilake.expr import ColumnStats
from trilake.table.findings import Finding

Mask = npt.NDArray[np.bool_]
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
    for path in adds["file"].filter(pc.and_(json_strings, pc.invert(valid))).to_pylist():
        yield _finding(table, "statistics-malformed", "the statistics are not a JSON object", path, None)
    counts = record_counts(adds, table.engine.query)
    vectors = pc.is_valid(pc.struct_field(adds["deletionVector"], "storageType"))
    unknown = pc.and_(pc.is_null(counts), vectors)
    for path in adds["file"].filter(unknown).to_pylist():
        message = "the file has a deletion vector, but its statistics have no numRecords"
        yield _finding(table, "statistics-malformed", message, path, None)
    cardinality = pc.struct_field(adds["deletionVector"], "cardinality")
    more = pc.fill_null(pc.greater(cardinality, counts), False)
    for path in adds["file"].filter(more).to_pylist():
        yield _finding(table, "statistics-malformed", "more rows are deleted than the statistics state", path, None)
    return int(pc.sum(json_strings).as_py() or 0)


def bounds(table: DeltaContext) -> Generator[Finding, None, int]:
    """No row lies outside the bounds that its file's statistics state."""
    facts = row_facts(table)
    adds = table.adds.take(pa.array(facts.files, pa.int64()))
    for path, stats in _columns(table, adds):
        actual = facts.bounds.get(path)
        if actual is None:
            continue
        for bound, value, less in ((stats.min, actual[0], True), (stats.max, actual[1], False)):
            if bound is None:
                continue
            outside = _beyond(value, bound, less)
            for number in np.flatnonzero(outside).tolist():
                side = "least" if less else "greatest"
                true, bound_value = value[number].as_py(), bound[number].as_py()
                message = f"the {side} value is {true!r:.100}, but the statistics state {bound_value!r:.100}"
                yield _finding(table, "statistics-bounds", message, adds["file"][number].as_py(), ".".join(path))
    return len(facts.files)


def _beyond(value: pa.Array, bound: pa.Array | pa.ChunkedArray, less: bool) -> Mask:
    bounds = bound.combine_chunks() if isinstance(bound, pa.ChunkedArray) else bound
    if isinstance(bounds, pa.ChunkedArray):
        bounds = bounds.chunk(0) if bounds.num_chunks else pa.array([], bound.type)
    if value.type != bounds.type:
        value = value.cast(bounds.type)
    beyond = (pc.less if less else pc.greater)(value, bounds)
    mask: Mask = pc.fill_null(beyond, False).to_numpy(zero_copy_only=False)
    return mask


def nulls(table: DeltaContext) -> Generator[Finding, None, int]:
    """The statistics state how many values are null."""
    facts = row_facts(table)
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
            message = f"{true:,} values are null, but the statistics state {stated:,}"
            yield _finding(table, "statistics-nulls", message, adds["file"][number].as_py(), ".".join(path))
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


def _finding(table: DeltaContext, code: str, message: str, file: str, column: str | None) -> Finding:
    return table.finding(f"delta.{code}", message, _HELP, file=file, column=column, repair=RECOMPUTE)
