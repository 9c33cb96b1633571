"""DELETE, UPDATE, TRUNCATE and MERGE of trilake tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.common.text import columns_help, quote_name, quote_parts
from trilake.delta.commands.write.assignments import assigned_once
from trilake.delta.protocol.partitions import partition_fields
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import field_at, format_path, parse_path, with_alias, without_alias
from trilake.delta.scan.scan import read_schema
from trilake.errors import AmbiguousMergeError, InvalidArgumentError, SchemaMismatchError
from trilake.spark.delta.merge.run import merge_dataframe
from trilake.spark.delta.merge.source import SparkMerge
from trilake.spark.delta.row_changes import delete_rows, update_rows
from trilake.spark.delta.storing.store_assignment import AssignmentRules, named_columns, stored
from trilake.spark.live_frames.versions import reading
from trilake.spark.scan.columns import empty_frame
from trilake.spark.session.analysis_errors import unsupported_error
from trilake.spark.session.compat import analysed_frame
from trilake.spark.session.format import MergeByKeys, spark_format_named
from trilake.spark.session.schemas import to_spark
from trilake.sql.parser.changes import DeleteOrUpdate, Merge, Truncate, Values, When, clause_of, partition_condition
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import default_or, has_query, requalified, split_names, unqualified
from trilake.sql.parser.projections import Beside, by_column
from trilake.sql.parser.statements import MERGE, numbers
from trilake.sql.parser.tokens import depths
from trilake.sql.spark.session import entries
from trilake.sql.spark.session.frames import open_delta
from trilake.sql.spark.session.problems import Local
from trilake.sql.spark.session.relations import local_views, localized, query
from trilake.sql.spark.session.session import SqlSession, counts, nothing
from trilake.sql.spark.session.targets import Target, changeable_table, find_entry, not_found, whole_names


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
        return dict.fromkeys({*whole_names(self.session, self.target.parts), (self.target.parts[-1].lower(),)}, "")

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
        """Replace qualifiers of several parts with the alias or the table's last name."""
        quoted = quote_name(self.qualifier())
        return requalified(sql, {n: quoted for n in self.names if len(n) > 1})


def run_delete(session: SqlSession, change: DeleteOrUpdate) -> DataFrame:
    """Delete rows; return their number."""
    target, change = _target(session, change)
    if not target.has_log:
        return delete_plainly(session, target, change.condition)
    table = open_delta(session, target)
    if change.condition is None:
        return counts(session, num_affected_rows=delete_rows(session.spark, table, None).rows)
    columns = Named(session, target, read_schema(table.snapshot.schema), change.alias)
    sql, plain = columns.plain(change.condition)
    with reading(table.uri, table.version):
        local = localized(session, sql if plain else columns.inside(sql), expression=True)
    alias = None if plain else columns.qualifier()
    with local_views(session, local):
        _check_condition(session, columns.schema, alias, local.sql)
        result = delete_rows(session.spark, table, local.sql, alias=alias)
    return counts(session, num_affected_rows=result.rows)


def run_update(session: SqlSession, change: DeleteOrUpdate) -> DataFrame:
    """Update rows; return their number."""
    target, change = _target(session, change)
    if not target.has_log:
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
        with reading(table.uri, table.version):
            return localized(session, columns.plain(sql)[0] if plain else columns.inside(sql), expression=True)

    values = {column: local(v) for column, v in assigned_once(assignments).items()}
    condition = None if change.condition is None else local(change.condition)
    alias = None if plain else columns.qualifier()
    with local_views(session, *values.values(), *([] if condition is None else [condition])):
        if condition is not None:
            _check_condition(session, columns.schema, alias, condition.sql)
        _check_assigned(session, columns.schema, alias, {n: v.sql for n, v in values.items()})
        result = update_rows(
            session.spark,
            table,
            {format_path(with_alias(parse_path(n), alias)): F.expr(v.sql) for n, v in values.items()},
            None if condition is None else condition.sql,
            alias=alias,
        )
    return counts(session, num_affected_rows=result.rows)


def _check_condition(session: SqlSession, schema: StructType, alias: str | None, sql: str) -> None:
    """Check that Spark can resolve a condition."""
    analysed_frame(empty_frame(session.spark, schema, alias).where(F.expr(sql)))


def _check_assigned(session: SqlSession, schema: StructType, alias: str | None, values: dict[str, str]) -> None:
    expressions = (F.expr(v).alias(f"v{i}") for i, v in enumerate(values.values()))
    frame = analysed_frame(empty_frame(session.spark, schema, alias).select(*expressions))
    try:
        fields = [to_spark(StructType((field_at(schema, n),))).fields[0] for n in values]
    except SchemaMismatchError as e:
        e.context["condition"] = "FIELD_NOT_FOUND"
        raise
    # Only types are checked here, so any cast mode will do.
    rules = replace(AssignmentRules.of_changes(session.spark), ansi=True)
    columns = (
        stored(F.col(f.name), f.dataType, w.dataType, n, rules=rules) for f, w, n in zip(frame.schema, fields, values)
    )
    analysed_frame(frame.select(*columns))


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
            f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] column {'.'.join(name)} not found in {named.target.display_name}",
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
    if not target.has_log:
        partition_condition(change.partition, (), target.path)  # raises: there are no partitions
        delete_plainly(session, target, None)
    else:
        table = open_delta(session, target)
        metadata = table.snapshot.metadata
        fields = partition_fields(read_schema(table.snapshot.schema), metadata.partition_columns)
        condition = partition_condition(change.partition, fields, target.path)
        if condition is not None:
            _check_condition(session, read_schema(table.snapshot.schema), None, condition)
        delete_rows(session.spark, table, condition)
    return nothing(session)


# --- tables other than Delta: simple conditions ---------------------------------------------------------------------


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


# --- MERGE ------------------------------------------------------------------------------------------------------------


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
    if not target.has_log:
        return merge_by_keys(session, target, merge, source)
    table = open_delta(session, target)
    schema = named_columns(session.spark, read_schema(table.snapshot.schema))
    named = Named(session, target, schema, merge.alias or merge.parts[-1])
    names = _names(session, merge, named.alias or "", source_alias)
    if view_columns is not None:
        columns = frozenset(c.lower() for c in schema.names)
        merge = _Through(view_columns, columns, named.alias or "", source_alias, source.columns, names).merge(merge)
    locals_: list[Local] = []

    def local_sql(expression: str) -> str:
        local = localized(session, requalified(expression, names), expression=True)
        locals_.append(local)
        return local.sql

    def column_of(parts: tuple[str, ...]) -> tuple[str, ...]:
        front = unqualified(parts, names)
        return front if front != parts else without_alias(parts, named.alias, schema)

    condition = local_sql(merge.condition)
    clauses = tuple(clause_of(c, schema, local_sql, column_of, named.alias) for c in merge.clauses)
    request = SparkMerge(source, condition, clauses, named.alias, merge.evolve)
    with local_views(session, *locals_):
        try:
            result = merge_dataframe(session.spark, table, request)
        except AmbiguousMergeError as e:
            raise unsupported_error(e) from e
    if merge.evolve:
        entries.refresh(session, target)
    return counts(session, **numbers(result, MERGE))


def _names(session: SqlSession, merge: Merge, alias: str, source_alias: str | None) -> dict[tuple[str, ...], str]:
    """Qualifiers of several parts, and the alias that replaces each."""
    out = {}
    relations = ((merge.parts, merge.alias, alias), (merge.source_parts, merge.source_alias, source_alias))
    for parts, explicit, short in relations:
        if parts is None or explicit is not None or short is None:
            continue
        out.update({w: quote_name(short) for w in whole_names(session, parts) if len(w) > 1})
    return out


# --- MERGE through a view that renames columns: rewrite it with the table's names -------------------------------------


@dataclass(frozen=True)
class _Through:
    """A merge through a view.

    ``view_columns`` are the table's columns by their names in the view, ``columns`` all of them in lower case, ``view``
    and ``source`` the aliases, ``short`` the alias for each longer qualifier.  Methods raise ``SchemaMismatchError``
    for a column that is not in the view, ``InvalidArgumentError`` for an ambiguous name.
    """

    view_columns: Mapping[str, str]
    columns: frozenset[str]
    view: str
    source: str | None
    source_columns: Sequence[str]
    short: Mapping[tuple[str, ...], str]

    def merge(self, merge: Merge) -> Merge:
        """Rewrite a merge into the view as a merge into its table."""
        clauses = tuple(map(self.clause, merge.clauses))
        return replace(merge, condition=self.of_both(merge.condition), clauses=clauses)

    def of_both(self, sql: str) -> str:
        front = None if self.source is None else self.source.lower()
        beside = Beside(front, frozenset(n.lower() for n in self.source_columns))
        return by_column(requalified(sql, self.short), self.view_columns, self.columns, (self.view.lower(),), beside)

    def of_view(self, sql: str) -> str:
        return by_column(requalified(sql, self.short), self.view_columns, self.columns, (self.view.lower(),))

    def clause(self, when: When) -> When:
        """Rewrite a clause; the expressions of an insert use only source columns and are unchanged."""
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


# --- MERGE by equal keys, for formats other than Delta ----------------------------------------------------------------


def merge_by_keys(session: SqlSession, target: Target, merge: Merge, source: DataFrame) -> DataFrame:
    """Merge rows by equal keys."""
    format = spark_format_named(target.format)
    plan = MergeByKeys(tuple(_keys(merge, target)))
    for when in merge.clauses:
        plan = _with(plan, when, target)
    changed = format.merge(session.spark, target.path, source, plan)
    return counts(session, num_affected_rows=sum(changed.values()), **changed)


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
