"""``Filter``: a condition, bound to the columns of one schema.

>>> import pyarrow as pa
>>> rows = pa.table({"n": [1, 2, None, 4], "s": ["a", "b", "c", "d"]})
>>> parse_filter("N > 1 AND s <> 'd'", rows.schema).apply(rows).to_pydict()
{'n': [2], 's': ['b']}
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import described
from trilake.errors import FilterError
from trilake.expr import arrow
from trilake.expr.terms.datatypes import Path, is_string
from trilake.expr.terms.evaluate import Rows, evaluate
from trilake.expr.terms.predicate import Conjunct, Opaque, Predicate, all_of

if TYPE_CHECKING:
    from trilake.expr.sql.functions import Function

#: A constant of another type, as :attr:`Conjunct.sql` has it.
_TYPED = re.compile(r"(?:CAST\('[^']*' AS [^()']*\)|\bX'[0-9A-Fa-f]*')")
_IN = re.compile(r"\bIN \(")


@dataclass(frozen=True, eq=False)
class Filter:
    """A condition; rows match where it is true, not where it is false or null.

    ``sql`` is the user's SQL, ``schema`` the bound schema and ``conjuncts`` the conditions joined by AND.
    ``expression`` is set for a pyarrow expression, which Arrow evaluates by its own rules.
    """

    sql: str
    schema: pa.Schema = field(repr=False)
    conjuncts: tuple[Conjunct, ...] = field(repr=False)
    expression: pc.Expression | None = field(default=None, repr=False)

    @cached_property
    def predicate(self) -> Predicate:
        return all_of([c.predicate for c in self.conjuncts])

    @cached_property
    def paths(self) -> frozenset[Path]:
        """The paths of the columns and nested fields that the condition reads."""
        return frozenset(path for c in self.conjuncts for path in c.predicate.paths())

    @cached_property
    def columns(self) -> frozenset[str]:
        """The top-level columns that the condition reads, in the schema's spelling."""
        return frozenset(path[0] for path in self.paths)

    @cached_property
    def assumes_ansi(self) -> bool:
        """Whether a session without ANSI mode may evaluate it to other values.

        Such a session casts strings to other types, and others to strings, by other rules; dates and times are
        compared with a string as in ANSI mode, but not by IN.
        """
        return self.expression is None and any(map(self._casts_by_mode, self.conjuncts))

    def _casts_by_mode(self, conjunct: Conjunct) -> bool:
        if any(isinstance(node, Opaque) for node in conjunct.predicate.walk()):
            return True
        sql = _TYPED.sub("", conjunct.sql)
        if "'" not in sql:
            return False
        columns = {self.schema.field(path[0]).type for path in conjunct.predicate.paths()}
        if not _IN.search(sql):
            columns = {t for t in columns if not (pa.types.is_date(t) or pa.types.is_timestamp(t))}
        return not all(map(is_string, columns))

    def evaluate(self, rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray:
        """Evaluate to true, false or null for each row, in order.

        ``rows`` only need :attr:`columns`.  Raises :class:`FilterError` if a value cannot be computed.
        """
        columns = self.columns
        columns_read = rows.select([i for i, name in enumerate(rows.schema.names) if name in columns])
        if self.expression is not None and not columns:
            columns_read = rows
        table = pa.Table.from_batches([columns_read]) if isinstance(columns_read, pa.RecordBatch) else columns_read
        if self.expression is not None:
            return arrow.evaluate(self.expression, table)
        return evaluate(self.predicate, Rows.of(table))

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray | pa.ChunkedArray:
        """Whether the condition is true for each row, in order; never null.

        An array for a record batch, a chunked array for a table.
        """
        mask = self.evaluate(rows)
        if mask.null_count:
            mask = pc.fill_null(mask, False)
        return mask.combine_chunks() if isinstance(rows, pa.RecordBatch) else mask

    def apply(self, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        return rows.filter(self.mask(rows))

    def __str__(self) -> str:
        return self.sql


def parse_filter(
    filter: str | pc.Expression | Filter | None,
    schema: pa.Schema,
    *,
    case_sensitive: bool = False,
    now: dt.datetime | None = None,
    functions: Mapping[str, Function] | None = None,
) -> Filter | None:
    """Bind a filter to the columns of ``schema``; ``None`` stays ``None``.

    Parameters
    ----------
    filter: a Spark SQL condition, or a pyarrow expression (whose column names are always case-sensitive).
    schema: the available columns.
    case_sensitive: whether names in SQL must be spelled as in the schema.
    now: the value of ``current_timestamp()``; the clock's, by default.
    functions: the functions that SQL may call; Spark's by default.

    Raises :class:`FilterError` for an invalid condition, unknown columns and types that cannot be compared.
    """
    if filter is None:
        return None
    if isinstance(filter, Filter):
        return filter
    if isinstance(filter, pc.Expression):
        return Filter(str(filter), schema, arrow.decode(filter, schema), filter)
    if not isinstance(filter, str):
        raise FilterError(
            f"a filter must be a string or a pyarrow expression, got {described(filter)}",
            help='write the condition in SQL, such as "id = 7"',
        )
    # late: importing sqlglot takes a third of a second
    from trilake.expr.sql.parse import parse_sql

    when = now if now is not None else dt.datetime.now(dt.UTC)
    conjuncts = parse_sql(filter, schema, case_sensitive=case_sensitive, now=when, functions=functions)
    return Filter(filter, schema, conjuncts)
