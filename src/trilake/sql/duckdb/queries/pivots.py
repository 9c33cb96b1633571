"""``PIVOT`` and ``UNPIVOT`` as the queries that say the same with GROUP BY and with ``stack``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.sql.dialect import spark_text
from trilake.sql.duckdb.queries.names import column_name
from trilake.sql.duckdb.queries.scope import Output


def pivoted(relation: exp.Expression, columns: Sequence[Output], pivot: exp.Expression) -> exp.Select:
    """The query that a pivoted relation is.

    Parameters
    ----------
    relation: what is pivoted.
    columns: its columns.
    pivot: the clause behind it.

    Raises ``FilterError`` for forms that are not known.
    """
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or not fields[0].expressions:
        raise FilterError(f"{spark_text(pivot)} is not known here", help="write it with GROUP BY or UNION ALL")
    return (_long if pivot.args.get("unpivot") else _wide)(relation, columns, pivot, fields[0])


def _wide(relation: exp.Expression, columns: Sequence[Output], pivot: exp.Expression, field: exp.In) -> exp.Select:
    calls = list(pivot.expressions)
    sought = field.this.expressions if isinstance(field.this, exp.Tuple) else [field.this]
    used = {c.name.lower() for e in (*calls, *sought) for c in e.find_all(exp.Column)}
    groups = [exp.column(exp.to_identifier(c.name, quoted=True)) for c in columns if c.name.lower() not in used]
    items: list[exp.Expression] = list(groups)
    for value in field.expressions:
        alias = value.alias if isinstance(value, exp.PivotAlias) else ""
        found = value.this if isinstance(value, exp.PivotAlias) else value
        tested = found.expressions if isinstance(found, exp.Tuple) else [found]
        if len(tested) != len(sought):
            raise FilterError(f"{spark_text(found)} has not as many values as PIVOT has columns")
        same = exp.and_(
            *(exp.NullSafeEQ(this=s.copy(), expression=t.copy()) for s, t in zip(sought, tested, strict=True))
        )
        name = alias or "_".join(column_name(t) for t in tested)
        for call in calls:
            bare = call.this if isinstance(call, exp.Alias) else call
            there = exp.GT(this=_filtered(_count(), same), expression=exp.Literal.number(0))
            shown = exp.Case(ifs=[exp.If(this=there, true=_filtered(bare, same))])
            full = name if len(calls) == 1 else f"{name}_{column_name(call)}"
            items.append(exp.Alias(this=shown, alias=exp.to_identifier(full, quoted=True)))
    query = exp.Select(expressions=items, from_=exp.From(this=relation))
    if groups:
        query.set("group", exp.Group(expressions=[g.copy() for g in groups]))
    return query


def _filtered(call: exp.Expression, condition: exp.Condition) -> exp.Expression:
    return exp.Filter(this=call.copy(), expression=exp.Where(this=condition.copy()))


def _count() -> exp.Expression:
    return exp.Anonymous(this="count", expressions=[exp.Star()])


def _long(relation: exp.Expression, columns: Sequence[Output], pivot: exp.Expression, field: exp.In) -> exp.Select:
    values, names = pivot.expressions, [field.this]
    if len(values) != 1 or not isinstance(values[0], exp.Identifier) or not isinstance(field.this, exp.Identifier):
        raise FilterError(f"{spark_text(pivot)} is not known here", help="UNPIVOT of one value is")
    rows: list[exp.Expression] = []
    taken = set()
    for column in field.expressions:
        bare = column.this if isinstance(column, exp.PivotAlias) else column
        if not isinstance(bare, exp.Column):
            raise FilterError(f"{spark_text(column)} is no column that UNPIVOT can take here")
        taken.add(bare.name.lower())
        label = column.alias if isinstance(column, exp.PivotAlias) else bare.name
        rows += [exp.Literal.string(label), bare.copy()]
    kept = [exp.column(exp.to_identifier(c.name, quoted=True)) for c in columns if c.name.lower() not in taken]
    made = [n.copy() for n in (*names, *values)]
    view = exp.Lateral(
        this=exp.Anonymous(this="stack", expressions=[exp.Literal.number(len(rows) // 2), *rows]),
        view=True,
        alias=exp.TableAlias(this=exp.to_identifier("unpivoted"), columns=made),
    )
    items = [*kept, *(exp.column(n.copy()) for n in made)]
    query = exp.Select(expressions=items, from_=exp.From(this=relation), laterals=[view])
    if not pivot.args.get("include_nulls"):
        known = exp.Not(this=exp.Is(this=exp.column(values[0].copy()), expression=exp.Null()))
        query.set("where", exp.Where(this=known))
    return query
