"""MERGE INTO trilake tables."""

from __future__ import annotations

from pyspark.sql import DataFrame

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.protocol.schema_edit import path_text, with_alias, without_alias
from trilake.delta.rules.defaults import default_text
from trilake.delta.scan.scan import read_schema
from trilake.errors import AmbiguousMergeError, InvalidArgumentError
from trilake.spark.delta.merge.request import Expr, SparkMerge
from trilake.spark.delta.merge.run import merge_dataframe
from trilake.spark.delta.storing.assignment_rules import named_columns
from trilake.spark.session.analysis_errors import unsupported_error
from trilake.sql.parser.expressions import requalified, unqualified
from trilake.sql.parser.merge import Merge, When
from trilake.sql.parser.numbers import MERGE, numbers
from trilake.sql.parser.tokens import tokenize
from trilake.sql.spark.rows.dml import Named
from trilake.sql.spark.rows.merge_views import by_columns_of_table
from trilake.sql.spark.rows.plain_changes import merge_by_keys
from trilake.sql.spark.session import catalogue
from trilake.sql.spark.session.frames import open_delta
from trilake.sql.spark.session.local import Local
from trilake.sql.spark.session.relations import local_views, localized, query
from trilake.sql.spark.session.results import counts
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import find_entry, full_parts, not_found, path_target, shown_table
from trilake.table.registry import DEFAULT


def run_merge(session: SqlSession, merge: Merge) -> DataFrame:
    """Merge rows; return the numbers of changed rows."""
    target, shown = shown_table(session, merge.parts)
    if target is None:
        if find_entry(session, merge.parts) is None:
            raise not_found(merge.parts)
        raise InvalidArgumentError(
            f"MERGE needs a Delta, Lance or Trevni table, {'.'.join(merge.parts)} is another one",
            help="convert it with CONVERT TO DELTA",
        )
    source_alias = merge.source_alias or (merge.source_parts[-1] if merge.source_parts else None)
    if shown is not None and source_alias is None:
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
    if shown is not None:
        merge = by_columns_of_table(merge, shown, schema.names, named.alias or "", source_alias, source.columns, names)
    locals_: list[Local] = []

    def text(expression: str) -> str:
        local = localized(session, requalified(expression, names), expression=True)
        locals_.append(local)
        return local.text

    condition = text(merge.condition)
    clauses = tuple(_clause(named, names, c, text) for c in merge.clauses)
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
def _clause(named: Named, names: dict[tuple[str, ...], str], when: When, text) -> Clause[Expr]:  # type: ignore[no-untyped-def]
    condition = None if when.condition is None else text(when.condition)
    if when.values is None:
        return Clause(when.kind, when.action, condition, None, when.excluded)
    values: dict[str, Expr] = {}
    for parts, value in when.values:
        front = unqualified(parts, names)
        column = front if front != parts else without_alias(parts, named.alias, named.schema)
        if len(tokenize(value)) == 1 and tokenize(value)[0].upper == "DEFAULT":
            field = named.schema.find(column[0])
            default = None if field is None else default_text(field)
            if default is None and field is not None and when.action == "insert":
                continue  # as for any new row: generated, identity or null
            value = "NULL" if default is None else f"({default})"
        key = path_text(with_alias(column, named.alias))
        if key in values:
            path = path_text(column)
            raise InvalidArgumentError(
                f"column {path} is assigned twice in one clause",
                column=path,
                condition="DELTA_CONFLICT_SET_COLUMN"
                if when.action == "update"
                else "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
            )
        values[key] = text(value)
    return Clause(when.kind, when.action, condition, values)
