"""Checks of pages: they can be decoded, and match their statistics."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import TrilakeError
from trilake.expr import ColumnStats
from trilake.lance.file.interfaces import DataFileReader
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.statistics import trusted
from trilake.lance.verify.context import LanceContext, OpenFile
from trilake.table.findings import Finding, unreadable

_HELP = "restore the file from a backup, or write its rows again"


@dataclass
class Pages:
    """Results of reading the sampled files: findings and the number of batches."""

    damaged: list[Finding] = field(default_factory=list)
    untrue: list[Finding] = field(default_factory=list)
    batches: int = 0


def read(table: LanceContext) -> Pages:
    """Read the batches of the sampled files once."""
    if table.pages is None:
        pages = Pages()
        for one in table.sampled:
            _read_file(table, one, pages)
        table.pages = pages
    out: Pages = table.pages
    return out


def _read_file(table: LanceContext, one: OpenFile, pages: Pages) -> None:
    file = one.file
    assert file is not None
    offsets = file.parts(file.schema)
    stated: dict[tuple[str, ...], ColumnStats] = {}
    if isinstance(file, V1File):
        try:
            stated = dict(trusted(file.statistics(), table.manifest.schema, np.diff(offsets).tolist()))
        except (TrilakeError, OSError, ValueError) as e:
            pages.untrue.append(table.finding("statistics-differ", unreadable("", e).message, one, help=_HELP))
    for batch, (start, stop) in enumerate(pairwise(offsets.tolist())):
        pages.batches += 1
        try:
            values = file.read_rows(start, stop, file.schema)
            values.validate(full=True)
        except (TrilakeError, OSError, ValueError) as e:  # Arrow errors are ValueErrors
            by_name = {f.name: _error(file, start, stop, f.name) for f in file.schema.fields}
            errors = {name: error for name, error in by_name.items() if error is not None}
            for name, error in errors.items() or [(None, e)]:
                where = {"column": name, "details": {"batch": batch}}
                message = unreadable("", error).message
                pages.damaged.append(table.finding("page-unreadable", message, one, help=_HELP, **where))
            continue
        for path, stats in stated.items():
            column = _at(values, path)
            wrong = None if column is None else _wrong_statistic(column, stats, batch)
            if wrong is not None:
                where = {"column": ".".join(path), "details": {"batch": batch}}
                pages.untrue.append(table.finding("statistics-differ", wrong, one, help=_HELP, **where))


def _error(file: DataFileReader, start: int, stop: int, name: str) -> Exception | None:
    try:
        file.read_rows(start, stop, file.schema.project([name])).validate(full=True)
    except (TrilakeError, OSError, ValueError) as e:
        return e
    return None


def _at(values: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None:
    at = values.schema.get_field_index(path[0])
    if at < 0:
        return None
    column = values.column(at)
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, [name])
    return column


def _wrong_statistic(values: pa.Array, stats: ColumnStats, batch: int) -> str | None:
    """Describe a wrong statistic of a batch, if there is one."""
    if stats.null_count is not None:
        stated = stats.null_count[batch].as_py()
        if stated is not None and stated != values.null_count:
            return f"{values.null_count:,} values are null, but the statistics say {stated:,}"
    if stats.min is None or stats.max is None:
        return None
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if values.null_count == len(values):
        return None
    true = pc.min_max(values)
    for side, bound, beyond in (("min", stats.min[batch], pc.less), ("max", stats.max[batch], pc.greater)):
        if bound.is_valid and beyond(true[side], bound).as_py():
            return f"the {side} value is {true[side].as_py()!r:.100}, but the statistics say {bound.as_py()!r:.100}"
    return None


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every page can be decoded."""
    yield from read(table).damaged
    return read(table).batches


def statistics(table: LanceContext) -> Generator[Finding, None, int]:
    """The statistics of every batch are correct."""
    yield from read(table).untrue
    return read(table).batches
