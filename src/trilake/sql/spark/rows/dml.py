"""DELETE, UPDATE and TRUNCATE of trilake tables; MERGE by equal keys for formats other than Delta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.common.text import columns_help, quote_name, quote_parts
from trilake.delta.commands.write.assignments import assigned_once
from trilake.delta.protocol.partitions import partition_fields
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import field_at, format_path, parse_path, with_alias
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.delta.row_changes import delete_rows, update_rows
from trilake.spark.delta.storing.store_assignment import AssignmentRules, named_columns, stored
from trilake.spark.session.format import MergeByKeys, spark_format_named
from trilake.spark.session.schemas import to_spark
from trilake.sql.parser.changes import DeleteOrUpdate, Merge, Truncate, When, partition_condition
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import default_or, has_query, requalified, split_names
from trilake.sql.parser.projections import by_column
from trilake.sql.parser.tokens import depths
from trilake.sql.spark.session.frames import open_delta
from trilake.sql.spark.session.problems import Local, check_condition, check_values, resolved
from trilake.sql.spark.session.relations import local_views, localized
from trilake.sql.spark.session.session import SqlSession, counts, nothing
from trilake.sql.spark.session.targets import Target, changeable_table, full_parts, not_found
from trilake.table.registry import DEFAULT


@dataclass(frozen=True)
class Named:
    """A table under its name in a statement's expressions."""

    session: SqlSession
    target: Target
    schema: StructType
    alias: str | None

    @property
    def names(self) -> dict[tuple[str, ...], str]:
        """Possible qualifiers of the table's columns, and what replaces them."""
        if self.alias is not None:
            return {(self.alias.lower(),): self.alias}
        parts = tuple(p.lower() for p in self.target.parts)
        out = {parts: "", (parts[-1],): ""}
        if self.target.entry is not None:
            database, table = (p.lower() for p in full_parts(self.session, self.target.parts))
            out |= {(database, table): "", ("spark_catalog", database, table): ""}
        return out

    def plain(self, sql: str) -> tuple[str, bool]:
        """Remove the qualifiers of columns; return whether that was possible: not in a query, and not if a column has
        the table's name."""
        heads = {n[-1] for n in self.names}
        if has_query(sql) or any(self.schema.find(h) is not None for h in heads):
            return sql, False
        return requalified(sql, dict.fromkeys(self.names, "")), True

    def qualifier(self) -> str:
        return self.alias or self.target.parts[-1]

    def inside(self, sql: str) -> str:
        """Replace qualifiers of several parts by the alias or the table's last name."""
        quoted = quote_name(self.qualifier())
        return requalified(sql, {n: quoted for n in self.names if len(n) > 1})


def run_delete(session: SqlSession, change: DeleteOrUpdate) -> DataFrame:
    """Delete rows; return their number."""
    target, change = _target(session, change)
    if target.format != DEFAULT:
        return delete_plainly(session, target, change.condition)
    table = open_delta(session, target)
    if change.condition is None:
        return counts(session, num_affected_rows=delete_rows(session.spark, table, None).rows)
    columns = Named(session, target, read_schema(table.snapshot.schema), change.alias)
    sql, plain = columns.plain(change.condition)
    local = localized(session, sql if plain else columns.inside(sql), expression=True)
    alias = None if plain else columns.qualifier()
    with local_views(session, local):
        check_condition(session, columns.schema, alias, local.sql)
        result = delete_rows(session.spark, table, local.sql, alias=alias)
    return counts(session, num_affected_rows=result.rows)


def run_update(session: SqlSession, change: DeleteOrUpdate) -> DataFrame:
    """Update rows; return their number."""
    target, change = _target(session, change)
    if target.format != DEFAULT:
        return update_plainly(session, target, change.values, change.condition)
    table = open_delta(session, target)
    schema = named_columns(session.spark, read_schema(table.snapshot.schema))
    columns = Named(session, target, schema, change.alias)
    assignments = []
    for name, value in change.values:
        column = column_path(columns, name)
        assignments.append((column, default_or(columns.schema, column, value)))
    expressions = [*(v for _, v in assignments), *([] if change.condition is None else [change.condition])]
    plain = all(columns.plain(t)[1] for t in expressions)

    def local(sql: str) -> Local:
        return localized(session, columns.plain(sql)[0] if plain else columns.inside(sql), expression=True)

    values = {column: local(v) for column, v in assigned_once(assignments).items()}
    condition = None if change.condition is None else local(change.condition)
    alias = None if plain else columns.qualifier()
    with local_views(session, *values.values(), *([] if condition is None else [condition])):
        if condition is not None:
            check_condition(session, columns.schema, alias, condition.sql)
        _check_assigned(session, columns.schema, alias, {n: v.sql for n, v in values.items()})
        result = update_rows(
            session.spark,
            table,
            {format_path(with_alias(parse_path(n), alias)): F.expr(v.sql) for n, v in values.items()},
            None if condition is None else condition.sql,
            alias=alias,
        )
    return counts(session, num_affected_rows=result.rows)


def _check_assigned(session: SqlSession, schema: StructType, alias: str | None, values: dict[str, str]) -> None:
    frame = check_values(session, schema, alias, values.values())
    try:
        fields = [to_spark(StructType((field_at(schema, n),))).fields[0] for n in values]
    except SchemaMismatchError as e:
        e.context["condition"] = "FIELD_NOT_FOUND"
        raise
    columns = zip(frame.schema, fields, values)
    # Only types are checked here, so any cast mode will do.
    rules = replace(AssignmentRules.of_changes(session.spark), ansi=True)
    resolved(
        session, frame.select(*(stored(F.col(f.name), f.dataType, w.dataType, n, rules=rules) for f, w, n in columns))
    )


def column_path(named: Named, name: tuple[str, ...]) -> tuple[str, ...]:
    """An assigned column without the table's name.  Raises ``SchemaMismatchError`` for a missing one."""
    lower = tuple(p.lower() for p in name)
    if named.schema.find(name[0]) is not None and (len(name) == 1 or (lower[0],) not in named.names):
        return name
    for front in sorted(named.names, key=len, reverse=True):
        if len(name) > len(front) and lower[: len(front)] == front and named.schema.find(name[len(front)]) is not None:
            return name[len(front) :]
    if named.schema.find(name[0]) is None:
        raise SchemaMismatchError(
            f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] column {'.'.join(name)} not found in {named.target.shown}",
            help=columns_help(name[-1], named.schema.names),
            column=".".join(name),
        )
    return name


def _target(session: SqlSession, change: DeleteOrUpdate) -> tuple[Target, DeleteOrUpdate]:
    """The table to change, and the change in terms of its columns."""
    target, display_names = changeable_table(session, change.parts)
    if target is None:  # dropped or renamed since it was looked up
        raise not_found(change.parts)
    if target.parts != change.parts and change.alias is None:
        change = replace(change, alias=change.parts[-1])  # the view's name
    return target, change if display_names is None else _through(target, change, display_names)


def _through(target: Target, change: DeleteOrUpdate, view_columns: Mapping[str, str]) -> DeleteOrUpdate:
    columns = {n.lower() for n in target.log.head().schema.names}
    fronts = {(change.alias or change.parts[-1]).lower()}

    whole = {tuple(p.lower() for p in change.parts): quote_name(change.alias or change.parts[-1])}

    def named(sql: str) -> str:
        return by_column(requalified(sql, whole), view_columns, columns, fronts)

    values = tuple((split_names([named(quote_parts(n))])[0], named(v)) for n, v in change.values)
    return replace(change, values=values, condition=None if change.condition is None else named(change.condition))


def run_truncate(session: SqlSession, change: Truncate) -> DataFrame:
    """Delete all rows, or those of some partitions."""
    target, _ = _target(session, DeleteOrUpdate(change.parts, None, (), None))
    if target.format != DEFAULT:
        partition_condition(change.partition, (), target.path)  # raises: there are no partitions
        delete_plainly(session, target, None)
    else:
        table = open_delta(session, target)
        metadata = table.snapshot.metadata
        fields = partition_fields(read_schema(table.snapshot.schema), metadata.partition_columns)
        condition = partition_condition(change.partition, fields, target.path)
        if condition is not None:
            check_condition(session, read_schema(table.snapshot.schema), None, condition)
        delete_rows(session.spark, table, condition)
    return nothing(session)


# --- tables other than Delta: simple conditions, and merges by equal keys --------------------------------------------


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
        f"MERGE into a {target.format.title()} table only supports UPDATE SET *, INSERT * and DELETE without"
        " conditions",
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
