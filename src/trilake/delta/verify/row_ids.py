"""Checks of row tracking and identity columns: ids exist and are unique, and no id is beyond its high-water mark."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pyarrow.compute as pc

from trilake.delta.commit.row_tracking import ENABLED, high_water_mark, supported
from trilake.delta.rules.identity import identity_columns
from trilake.delta.scan.statistics import StatisticsReader, record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.errors import TrilakeError
from trilake.table.findings import Finding

_REWRITE = "rewrite the file (OPTIMIZE)"
_MARK_HELP = "correct it before writing rows; otherwise ids would be assigned twice"


def present(table: DeltaContext) -> Generator[Finding, None, int]:
    """With row tracking, every file has row ids and the version that wrote its rows."""
    snapshot, adds = table.snapshot, table.adds
    if not (supported(snapshot.protocol) and snapshot.properties.is_on(ENABLED)):
        return 0
    lacking = pc.or_(pc.is_null(adds["baseRowId"]), pc.is_null(adds["defaultRowCommitVersion"]))
    for path in adds["file"].filter(lacking).to_pylist():
        yield _finding(table, "row-ids-missing", "the file has no row ids", _REWRITE, path)
    ahead = adds.filter(pc.greater(pc.fill_null(adds["defaultRowCommitVersion"], 0), table.version))
    for path in ahead["file"].to_pylist():
        yield _finding(table, "row-ids-missing", "the file's rows have a future version", _REWRITE, path)
    return table.file_count


def unique(table: DeltaContext) -> Generator[Finding, None, int]:
    """No two files share a row id."""
    adds = table.adds
    with_ids = adds.filter(pc.is_valid(adds["baseRowId"]))
    if not with_ids.num_rows:
        return 0
    order = pc.sort_indices(with_ids, [("baseRowId", "ascending")])
    with_ids = with_ids.take(order)
    first = with_ids["baseRowId"].to_numpy()
    last = first + pc.fill_null(record_counts(with_ids, table.engine.query), 0).to_numpy()
    # The furthest end among all earlier files, since a long range may overlap several short ones.
    reached = np.maximum.accumulate(last)[:-1]
    at = np.flatnonzero(first[1:] < reached) + 1
    for number in at.tolist():
        message = f"the file's row ids from {int(first[number])} on already belong to another file"
        yield _finding(table, "row-ids-overlap", message, _REWRITE, with_ids["file"][number].as_py())
    return int(with_ids.num_rows)


def mark_ahead(table: DeltaContext) -> Generator[Finding, None, int]:
    """No file has row ids beyond their high-water mark."""
    adds, snapshot = table.adds, table.snapshot
    with_ids = adds.filter(pc.is_valid(adds["baseRowId"]))
    if not with_ids.num_rows:
        return 0
    last = pc.add(with_ids["baseRowId"], pc.subtract(pc.fill_null(record_counts(with_ids, table.engine.query), 0), 1))
    top = int(pc.max(last).as_py())
    try:
        mark = high_water_mark(snapshot.state)
    except TrilakeError as e:
        yield _finding(table, "row-id-mark-behind", e.message, e.help, None)
        return 1
    if mark < top:
        message = f"the high-water mark of row ids is {mark}, but a row has the id {top}"
        yield _finding(table, "row-id-mark-behind", message, _MARK_HELP, None)
    return 1


def identity_marks(table: DeltaContext) -> Generator[Finding, None, int]:
    """No file's statistics show a value beyond the high-water mark of an identity column."""
    snapshot = table.snapshot
    columns = identity_columns(snapshot.schema)
    reader = StatisticsReader(snapshot.adds, snapshot.schema, snapshot.metadata.partition_columns, table.engine.query)
    if columns:
        reader.read((c.name,) for c in columns)
    for column in columns:
        stats = reader.column((column.name,))
        bound = None if stats is None else stats.max if column.step > 0 else stats.min
        reached = None if bound is None else (pc.max if column.step > 0 else pc.min)(bound).as_py()
        yield from _behind(table, column.name, column.mark, reached, column.step, column.explicit)
    return len(columns)


def _behind(
    table: DeltaContext, name: str, mark: int | None, reached: int | None, step: int, explicit: bool
) -> Generator[Finding, None, None]:
    if reached is None or (mark is not None and (mark >= reached if step > 0 else mark <= reached)):
        return
    if mark is None and explicit:
        return  # nothing was ever generated: all values were given
    yield table.finding(
        "delta.identity-mark-behind",
        f"the high-water mark of identity column {name!r} is {mark}, but a row has the value {reached}",
        "run ALTER TABLE ... ALTER COLUMN ... SYNC IDENTITY before writing rows; otherwise values would be"
        " generated twice",
        severity="warning" if explicit else "error",
        column=name,
    )


def _finding(table: DeltaContext, code: str, message: str, help: str | None, file: str | None) -> Finding:
    return table.finding(f"delta.{code}", message, help, file=file)
