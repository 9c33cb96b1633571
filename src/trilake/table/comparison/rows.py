"""Compare rows of two tables by hash, with bounded memory: DuckDB keeps a few numbers per row and spills to disk.

Hashes are those of :mod:`trilake.table.checksum`: the same in every format and column order.  Two different rows have
the same hash with a probability of 2^-64.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.expr.terms.engine import open_database
from trilake.table.checksum import row_hashes
from trilake.table.comparison.result import RowsDiff

if TYPE_CHECKING:
    import duckdb

#: Returns the rows of one side; may be called several times.
Rows: TypeAlias = Callable[[], Iterable[pa.RecordBatch]]
_SIDES = ("before", "after")


def compare_rows(before: Rows, after: Rows, columns: Sequence[str], key: Sequence[str], limit: int) -> RowsDiff:
    """Compare rows.

    Parameters
    ----------
    before, after: the rows of the two sides, with at least ``columns``.
    columns: the columns to compare.
    key: the columns that match rows; without them, whole rows are compared.
    limit: how many rows of each kind to return.

    Raises ``InvalidArgumentError`` if rows of one side have the same key.
    """
    others = [c for c in columns if c not in set(key)]
    with closing(open_database(os.cpu_count() or 1)) as db:
        db.execute("set preserve_insertion_order = false")
        names = ["k", *(f"c{i}" for i in range(len(others)))] if key else ["k"]
        for side, rows in zip(_SIDES, (before, after), strict=True):
            db.execute(f"create table {side} ({', '.join(f'{n} ubigint' for n in names)})")
            for batch in rows():
                if batch.num_rows:
                    groups = [key, *([c] for c in others)] if key else [columns]
                    hashes = [pa.array(row_hashes(batch.select(list(group)))) for group in groups]
                    db.register("incoming", pa.table(hashes, names))
                    db.execute(f"insert into {side} select * from incoming")
                    db.unregister("incoming")
            twice = key and _number(db, f"select count(*) from (select k from {side} group by k having count(*) > 1)")
            if twice:
                raise InvalidArgumentError(
                    f"the key {', '.join(key)} is not unique in the table {side}: {twice:,} of its values occur several"
                    " times",
                    help="add columns to the key, or compare whole rows by leaving the key out",
                )
        if key:
            return _by_key(db, before, after, columns, key, others, limit)
        return _whole(db, before, after, columns, limit)


def _number(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = db.sql(sql).fetchall()[0]
    return int(row[0] or 0)


def _whole(db: duckdb.DuckDBPyConnection, before: Rows, after: Rows, columns: Sequence[str], limit: int) -> RowsDiff:
    db.execute(
        "create table counts as select k, sum(b) as b, sum(a) as a from"
        " (select k, 1 as b, 0 as a from before union all select k, 0, 1 from after) group by k"
    )
    num_removed = _number(db, "select sum(greatest(b - a, 0)) from counts")
    num_added = _number(db, "select sum(greatest(a - b, 0)) from counts")
    same = _number(db, "select sum(least(a, b)) from counts")
    parts = []
    for rows, more, less in ((before, "b", "a"), (after, "a", "b")):
        samples = db.sql(f"select k, ({more} - {less})::bigint as n from counts where {more} > {less} limit {limit}")
        parts.append(_some(rows, columns, columns, samples.to_arrow_table(), limit))
    nothing = parts[0].slice(0, 0)
    return RowsDiff((), num_added, num_removed, 0, same, parts[1], parts[0], nothing, {}, tuple(columns))


def _by_key(
    db: duckdb.DuckDBPyConnection,
    before: Rows,
    after: Rows,
    columns: Sequence[str],
    key: Sequence[str],
    others: Sequence[str],
    limit: int,
) -> RowsDiff:
    differ = [f"(before.c{i} <> after.c{i})" for i in range(len(others))]
    changed_sql = " or ".join(differ) or "false"
    num_removed = _number(db, "select count(*) from before anti join after using (k)")
    num_added = _number(db, "select count(*) from after anti join before using (k)")
    sums = ", ".join(["count(*)", f"coalesce(sum(({changed_sql})::int), 0)", *(f"sum({d}::int)" for d in differ)])
    totals = db.sql(f"select {sums} from before join after using (k)").fetchall()[0]
    both, num_changed, *by_column = (int(n or 0) for n in totals)

    def some(rows: Rows, sql: str) -> pa.Table:
        samples = db.sql(f"select k, 1::bigint as n from {sql} limit {limit}").to_arrow_table()
        return _some(rows, columns, key, samples, limit)

    changed_from = f"(select k from before join after using (k) where {changed_sql} order by k)"
    sampled = [some(rows, changed_from) for rows in (before, after)]
    pairs = [t.append_column("_side", pa.repeat(side, len(t))) for t, side in zip(sampled, _SIDES, strict=True)]
    return RowsDiff(
        tuple(key),
        num_added,
        num_removed,
        num_changed,
        both - num_changed,
        some(after, "(select k from after anti join before using (k))"),
        some(before, "(select k from before anti join after using (k))"),
        pa.concat_tables(pairs, promote_options="permissive"),
        dict(zip(others, by_column, strict=True)),
        tuple(columns),
    )


def _some(rows: Rows, columns: Sequence[str], hashed: Sequence[str], samples: pa.Table, limit: int) -> pa.Table:
    remaining = dict(zip(samples["k"].to_pylist(), samples["n"].to_pylist(), strict=True))
    batches_with_rows: list[pa.RecordBatch] = []
    count = 0
    schema: pa.Schema | None = None
    for batch in rows():
        batch = batch.select(list(columns))
        schema = schema or batch.schema
        if not remaining or count >= limit:
            break
        hashes = row_hashes(batch.select(list(hashed)))
        hits = np.flatnonzero(np.isin(hashes, np.fromiter(remaining, np.uint64, len(remaining))))
        indexes: list[int] = []
        for at in hits[: 8 * limit + len(remaining)].tolist():  # few: the result is limited
            name = int(hashes[at])
            if remaining.get(name, 0) and count < limit:
                remaining[name] -= 1
                count += 1
                indexes.append(at)
                if not remaining[name]:
                    del remaining[name]
        if indexes:
            batches_with_rows.append(batch.take(pa.array(indexes, pa.int64())))
    if schema is None:
        return pa.table({c: pa.nulls(0) for c in columns})
    return pa.Table.from_batches(batches_with_rows, schema)
