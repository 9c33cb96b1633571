"""MERGE INTO trilake tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from trilake.common.text import columns_help, quote_name, quote_parts
from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.protocol.schema_edit import format_path, with_alias, without_alias
from trilake.delta.rules.defaults import default_expression
from trilake.delta.scan.scan import read_schema
from trilake.errors import AmbiguousMergeError, InvalidArgumentError, SchemaMismatchError
from trilake.spark.delta.merge.run import merge_dataframe
from trilake.spark.delta.merge.source import Expr, SparkMerge
from trilake.spark.delta.storing.store_assignment import named_columns
from trilake.spark.session.analysis_errors import unsupported_error
from trilake.sql.parser.changes import Merge, Values, When
from trilake.sql.parser.expressions import requalified, split_names, unqualified
from trilake.sql.parser.projections import Beside, by_column
from trilake.sql.parser.statements import MERGE, numbers
from trilake.sql.parser.tokens import tokenize
from trilake.sql.spark.rows.dml import Named, merge_by_keys
from trilake.sql.spark.session import catalogue
from trilake.sql.spark.session.frames import open_delta
from trilake.sql.spark.session.problems import Local
from trilake.sql.spark.session.relations import local_views, localized, query
from trilake.sql.spark.session.session import SqlSession, counts
from trilake.sql.spark.session.targets import changeable_table, find_entry, full_parts, not_found, path_target
from trilake.table.registry import DEFAULT


def run_merge(session: SqlSession, merge: Merge) -> DataFrame:
    """Merge rows; return the numbers of changed rows."""
    target, view_columns = changeable_table(session, merge.parts)
    if target is None:
        if find_entry(session, merge.parts) is None:
            raise not_found(merge.parts)
        raise InvalidArgumentError(
            f"MERGE needs a Delta, Lance or Trevni table, but {'.'.join(merge.parts)} has another format",
            help="convert it with CONVERT TO DELTA",
        )
    source_alias = merge.source_alias or (merge.source_parts[-1] if merge.source_parts else None)
    if view_columns is not None and source_alias is None:
        source_alias = session.private_name()  # the view's columns may have names of the table's columns
    named_source = merge.source if source_alias is None else f"{merge.source} AS {quote_name(source_alias)}"
    source = query(session, f"SELECT * FROM {named_source}")
    if source_alias is not None:
        source = source.alias(source_alias)
    if target.format != DEFAULT:
        return merge_by_keys(session, target, merge, source)
    table = open_delta(session, target)
    schema = named_columns(session.spark, read_schema(table.snapshot.schema))
    named = Named(session, target, schema, merge.alias or merge.parts[-1])
    names = _names(session, merge, named.alias or "", source_alias)
    if view_columns is not None:
        merge = by_columns_of_table(
            merge, view_columns, schema.names, named.alias or "", source_alias, source.columns, names
        )
    locals_: list[Local] = []

    def local_sql(expression: str) -> str:
        local = localized(session, requalified(expression, names), expression=True)
        locals_.append(local)
        return local.sql

    condition = local_sql(merge.condition)
    clauses = tuple(_clause(named, names, c, local_sql) for c in merge.clauses)
    request = SparkMerge(source, condition, clauses, named.alias, merge.evolve)
    with local_views(session, *locals_):
        try:
            result = merge_dataframe(session.spark, table, request)
        except AmbiguousMergeError as e:
            raise unsupported_error(e) from e
    if merge.evolve:
        catalogue.refresh(session, target)
    return counts(session, **numbers(result, MERGE))


def _names(session: SqlSession, merge: Merge, alias: str, source_alias: str | None) -> dict[tuple[str, ...], str]:
    """Qualifiers of several parts, and the alias that replaces each."""
    out = {}
    relations = ((merge.parts, merge.alias, alias), (merge.source_parts, merge.source_alias, source_alias))
    for parts, explicit, short in relations:
        if parts is None or explicit is not None or short is None:
            continue
        whole = {tuple(p.lower() for p in parts)}
        if path_target(session, parts) is None:
            database, table = (p.lower() for p in full_parts(session, parts))
            whole |= {(database, table), ("spark_catalog", database, table)}
        out.update({w: quote_name(short) for w in whole if len(w) > 1})
    return out


# a closure
def _clause(named: Named, names: dict[tuple[str, ...], str], when: When, sql) -> Clause[Expr]:  # type: ignore[no-untyped-def]
    condition = None if when.condition is None else sql(when.condition)
    if when.values is None:
        return Clause(when.kind, when.action, condition, None, when.excluded)
    values: dict[str, Expr] = {}
    for parts, value in when.values:
        front = unqualified(parts, names)
        column = front if front != parts else without_alias(parts, named.alias, named.schema)
        if len(tokenize(value)) == 1 and tokenize(value)[0].upper == "DEFAULT":
            field = named.schema.find(column[0])
            default = None if field is None else default_expression(field)
            if default is None and field is not None and when.action == "insert":
                continue  # as for any new row: generated, identity or null
            value = "NULL" if default is None else f"({default})"
        key = format_path(with_alias(column, named.alias))
        if key in values:
            path = format_path(column)
            raise InvalidArgumentError(
                f"column {path} is assigned twice in one clause",
                column=path,
                condition="DELTA_CONFLICT_SET_COLUMN"
                if when.action == "update"
                else "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
            )
        values[key] = sql(value)
    return Clause(when.kind, when.action, condition, values)


# --- MERGE through a view that renames columns: rewrite it with the table's names -------------------------------------


@dataclass(frozen=True)
class _Through:
    """A merge through a view; see :func:`by_columns_of_table`."""

    view_columns: Mapping[str, str]
    columns: frozenset[str]
    view: str
    source: str | None
    source_columns: Sequence[str]
    short: Mapping[tuple[str, ...], str]

    def of_both(self, sql: str) -> str:
        front = None if self.source is None else self.source.lower()
        beside = Beside(front, frozenset(n.lower() for n in self.source_columns))
        return by_column(requalified(sql, self.short), self.view_columns, self.columns, (self.view.lower(),), beside)

    def of_view(self, sql: str) -> str:
        return by_column(requalified(sql, self.short), self.view_columns, self.columns, (self.view.lower(),))

    def clause(self, when: When) -> When:
        """Rewrite a clause; the expressions of an insert name source columns only, and stay."""
        named = self.of_both if when.kind == "matched" else self.of_view
        stays = when.kind == "not_matched"
        condition = when.condition if stays or when.condition is None else named(when.condition)
        values = when.values
        if values is None and when.action != "delete":
            values = self._all(when.excluded)
        elif values is not None and not stays:
            values = tuple((name, named(value)) for name, value in values)
        if values is not None:
            values = tuple((self._assigned(name), value) for name, value in values)
        return replace(when, condition=condition, values=values, excluded=())

    def _all(self, excluded: Sequence[str]) -> Values:
        """Assignments for ``*``: the columns of the view from those of the source with the same name."""
        without = {n.strip("`").lower() for n in excluded}
        by_name = {n.lower(): n for n in self.source_columns}
        lost = [name for name in self.view_columns if name not in by_name and name not in without]
        if lost:
            raise SchemaMismatchError(
                f"column {lost[0]!r} of the view {self.view} not found in the source",
                help=columns_help(lost[0], self.source_columns),
                column=lost[0],
                condition="DELTA_MERGE_UNRESOLVED_EXPRESSION",
            )
        front = "" if self.source is None else f"{quote_name(self.source)}."
        return tuple(((name,), front + quote_name(by_name[name])) for name in self.view_columns if name not in without)

    def _assigned(self, name: tuple[str, ...]) -> tuple[str, ...]:
        column_name = unqualified(name, [(self.view.lower(),), *self.short])
        return split_names([by_column(quote_parts(column_name), self.view_columns, self.columns, ())])[0]


def by_columns_of_table(
    merge: Merge,
    view_columns: Mapping[str, str],
    columns: Sequence[str],
    view: str,
    source: str | None,
    source_columns: Sequence[str],
    short: Mapping[tuple[str, ...], str],
) -> Merge:
    """Rewrite a merge into a view to one into its table.  ``view_columns`` are the table's columns by their names in
    the view, ``view`` and ``source`` the aliases, ``short`` the alias for each longer qualifier.  Raises
    ``SchemaMismatchError`` for a column that is not in the view, ``InvalidArgumentError`` for an ambiguous name."""
    through = _Through(view_columns, frozenset(c.lower() for c in columns), view, source, source_columns, short)
    clauses = tuple(map(through.clause, merge.clauses))
    return replace(merge, condition=through.of_both(merge.condition), clauses=clauses)
