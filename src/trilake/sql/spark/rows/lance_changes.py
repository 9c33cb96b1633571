"""DELETE, UPDATE and MERGE of Lance datasets, through the jobs of the Python interface."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.merge_insert import MergeInsert
from trilake.lance.table import LanceTable
from trilake.spark.lance import jobs as lance_jobs
from trilake.spark.lance.merge_job import merge_insert
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import has_query, requalified
from trilake.sql.parser.merge import Merge, When
from trilake.sql.parser.tokens import depths
from trilake.sql.spark.session.results import counts
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target


def delete_lance(session: SqlSession, target: Target, condition: str | None) -> DataFrame:
    """Delete rows; one row that says how many."""
    before = LanceTable(target.store).count()
    lance_jobs.delete(session.spark, target.path, _plain(target, condition) or "true")
    return counts(session, num_affected_rows=before - LanceTable(target.store).count())


def update_lance(
    session: SqlSession, target: Target, values: tuple[tuple[tuple[str, ...], str], ...], condition: str | None
) -> DataFrame:
    """Change rows; one row that says how many."""
    assignments = {parts[-1]: _plain(target, value) or "" for parts, value in values}
    done = lance_jobs.update(session.spark, target.path, assignments, _plain(target, condition))
    return counts(session, num_affected_rows=done.num_rows_updated)


def _plain(target: Target, text: str | None) -> str | None:
    if text is None:
        return None
    if has_query(text):
        raise InvalidArgumentError(
            "conditions and values of a change of a Lance dataset cannot hold queries",
            help="collect what the query finds first, or use MERGE",
            file=target.path,
        )
    parts = tuple(p.lower() for p in target.parts)
    return requalified(text, {parts: "", (parts[-1],): ""})


def merge_lance(session: SqlSession, target: Target, merge: Merge, source: DataFrame) -> DataFrame:
    """Merge rows by equal keys: what a Lance dataset knows as ``merge_insert``."""
    if target.format != "lance":
        raise InvalidArgumentError("Trevni files cannot be changed", file=target.path)
    clauses = MergeInsert(tuple(_keys(merge)))
    for when in merge.clauses:
        clauses = _with(clauses, when, target)
    stats = merge_insert(session.spark, target.path, source, list(clauses.on), clauses)
    return counts(
        session,
        num_affected_rows=stats.num_inserted_rows + stats.num_updated_rows + stats.num_deleted_rows,
        num_updated_rows=stats.num_updated_rows,
        num_deleted_rows=stats.num_deleted_rows,
        num_inserted_rows=stats.num_inserted_rows,
    )


def _with(clauses: MergeInsert, when: When, target: Target) -> MergeInsert:
    if when.values is None and when.condition is None:
        if when.kind == "matched":
            return replace(clauses, update=True) if when.action == "update" else replace(clauses, delete_matched=True)
        if when.kind == "not_matched":
            return replace(clauses, insert=True)
        if when.action == "delete":
            return replace(clauses, delete_unmatched=True)
    raise InvalidArgumentError(
        "a MERGE into a Lance dataset takes UPDATE SET *, INSERT * and DELETE, without conditions",
        help="prepare the source so that whole rows are given",
        file=target.path,
    )


def _keys(merge: Merge) -> list[str]:
    """The columns of ``t.a = s.a AND t.b = s.b``.  Raises ``InvalidArgumentError`` for any other condition."""
    cursor = Cursor(merge.condition)
    out = []
    if any(depths(cursor.tokens)):
        cursor = Cursor(merge.condition.strip().removeprefix("(").removesuffix(")"))
    while cursor.token is not None:
        left = cursor.name()
        equal = cursor.accept_symbol("=") or cursor.accept_symbol("==")
        right = cursor.name() if equal else ()
        if not right or left[-1].lower() != right[-1].lower():
            raise InvalidArgumentError(
                f"rows of a Lance dataset are matched by equal columns of the same name, not by {merge.condition}"
            )
        out.append(left[-1])
        if cursor.token is not None:
            cursor.expect("AND")
    return out
