"""DELETE, UPDATE and MERGE of tables other than Delta: simple conditions, and merges by equal keys."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from trilake.errors import InvalidArgumentError
from trilake.spark.session.format import MergeByKeys, spark_format_named
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import has_query, requalified
from trilake.sql.parser.merge import Merge, When
from trilake.sql.parser.tokens import depths
from trilake.sql.spark.session.results import counts
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target


def delete_plainly(session: SqlSession, target: Target, condition: str | None) -> DataFrame:
    """Delete rows; return their number."""
    deleted = spark_format_named(target.format).delete(session.spark, target.path, _plain(target, condition))
    return counts(session, num_affected_rows=deleted)


def update_plainly(
    session: SqlSession, target: Target, values: tuple[tuple[tuple[str, ...], str], ...], condition: str | None
) -> DataFrame:
    """Update rows; return their number."""
    assignments = {parts[-1]: _plain(target, value) or "" for parts, value in values}
    changed = spark_format_named(target.format).update(
        session.spark, target.path, assignments, _plain(target, condition)
    )
    return counts(session, num_affected_rows=changed)


def _plain(target: Target, sql: str | None) -> str | None:
    if sql is None:
        return None
    if has_query(sql):
        raise InvalidArgumentError(
            f"DELETE and UPDATE of a {target.format.title()} table do not support subqueries",
            help="collect the query's result first, or use MERGE",
            file=target.path,
        )
    parts = tuple(p.lower() for p in target.parts)
    return requalified(sql, {parts: "", (parts[-1],): ""})


def merge_by_keys(session: SqlSession, target: Target, merge: Merge, source: DataFrame) -> DataFrame:
    """Merge rows by equal keys."""
    format = spark_format_named(target.format)
    plan = MergeByKeys(tuple(_keys(merge, target)))
    for when in merge.clauses:
        plan = _with(plan, when, target)
    rows = format.merge(session.spark, target.path, source, plan)
    return counts(
        session,
        num_affected_rows=rows.inserted + rows.updated + rows.deleted,
        num_updated_rows=rows.updated,
        num_deleted_rows=rows.deleted,
        num_inserted_rows=rows.inserted,
    )


def _with(plan: MergeByKeys, when: When, target: Target) -> MergeByKeys:
    if when.values is None and when.condition is None:
        if when.kind == "matched":
            return replace(plan, matched=when.action)
        if when.kind == "not_matched":
            return replace(plan, insert=True)
        if when.action == "delete":
            return replace(plan, delete_unmatched=True)
    raise InvalidArgumentError(
        f"MERGE into a {target.format.title()} table supports UPDATE SET *, INSERT * and DELETE, without conditions",
        help="compute whole rows in the source",
        file=target.path,
    )


def _keys(merge: Merge, target: Target) -> list[str]:
    """The columns of ``t.a = s.a AND t.b = s.b``.  Raises ``InvalidArgumentError`` for any other condition."""
    cursor = Cursor(merge.condition)
    out = []
    if any(depths(cursor.tokens)):
        cursor = Cursor(merge.condition.strip().removeprefix("(").removesuffix(")"))
    while cursor.token is not None:
        left_name = cursor.name()
        equal = cursor.accept_symbol("=") or cursor.accept_symbol("==")
        right = cursor.name() if equal else ()
        if not right or left_name[-1].lower() != right[-1].lower():
            raise InvalidArgumentError(
                f"MERGE into a {target.format.title()} table needs a condition that compares columns of the same name"
                f" for equality, got {merge.condition}",
                help="write ON t.id = s.id, and rename columns in the source",
            )
        out.append(left_name[-1])
        if cursor.token is not None:
            cursor.expect("AND")
    return out
