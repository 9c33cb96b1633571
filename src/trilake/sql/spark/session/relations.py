"""Rewrite queries over trilake tables for Spark: replace table names with private views of DataFrames.

A name is replaced at the position that Spark's parser reports; everything else stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.option_values import stated_version
from trilake.common.text import quote_name
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedSparkError, stating
from trilake.spark.live_frames.frames import follow_tables_of, following, make, renewed, template_of
from trilake.spark.live_frames.versions import is_in_cache
from trilake.spark.session.compat import dataset_of, error_condition, frame_of_plan, is_connect, parse_release
from trilake.spark.session.internals import connect_plan, query_execution
from trilake.sql.parser.candidates import candidates
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.expressions import names_in
from trilake.sql.parser.literals import Args
from trilake.sql.parser.paths import as_path, named_path
from trilake.sql.parser.statements import QUERIES, kind
from trilake.sql.parser.tokens import Token, tokenize
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.frames import changes_of, frame_of, moment_ms, stream_of
from trilake.sql.spark.session.jvm import alias_follows, pass_sample
from trilake.sql.spark.session.problems import Local, WithMetadata, in_place
from trilake.sql.spark.session.session import Query, SqlSession, session_key
from trilake.sql.spark.session.targets import Target, View, not_found, path_target, resolve, whole_names
from trilake.table.registry import DEFAULT

#: The table functions for a change data feed.
CHANGES = ("table_changes", "table_changes_by_path")
#: Conditions of Spark for values of an inline table that are not constant.
_NOT_CONSTANT = ("INVALID_INLINE_TABLE", "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY")
_METADATA = "_metadata"


def names_trilake_table(session: SqlSession, sql: str, tokens: Sequence[Token] | None = None) -> bool:
    """Whether SQL may name a trilake table: a cheap check without Spark's parser."""
    with session.one_namespace():
        return any(p[-1].lower() in CHANGES or resolve(session, p) is not None for p in candidates(sql, tokens))


def localized(session: SqlSession, sql: str, args: Args = None, *, expression: bool = False) -> Local:
    """Replace the trilake tables in a query or an expression with private names.  Raises ``ParseException``."""
    if not names_trilake_table(session, sql):
        return Local(Edited.of(sql, ()))
    head = "SELECT " if expression else ""
    relations = relations_of(session, head + sql)
    rewriter = _Rewriter(session, sql, args, tokenize(sql), len(head), Local(Edited.of(sql, ())))
    edits = [edit for relation in relations for edit in rewriter.edits(relation)]
    rewriter.out.edited = Edited.of(sql, [*edits, *rewriter.stars()])
    return rewriter.out


@dataclass(frozen=True)
class _Rewriter:
    """Finds the edits for SQL that Spark's parser reads with ``shift`` more characters at its head."""

    session: SqlSession
    sql: str
    args: Args
    tokens: Sequence[Token]
    shift: int
    #: Gets the DataFrames under their private names.
    out: Local

    def edits(self, relation: jvm.Relation) -> list[Edit]:
        """The edits for one table or table function."""
        tokens = self.tokens
        start = relation.start - self.shift
        at = next((i for i, t in enumerate(tokens) if t.start >= start), len(tokens))
        cursor = Cursor(self.sql, tokens, at)
        if relation.function:
            return self._function(cursor, relation)
        # ``STREAM t`` and ``STREAM(t)`` do not begin with the name.
        words = [t.upper or t.text for t in tokens[max(at - 2, 0) : at]]
        streamed = cursor.accept("STREAM") or words[-1:] == ["STREAM"] or words == ["STREAM", "("]
        while cursor.token is not None and not cursor.token.is_name:
            cursor.at += 1
        source = resolve(self.session, relation.parts)
        if source is None:
            return []
        if streamed and isinstance(source, Target):
            return self._streamed(source, cursor)
        cursor.name()
        if cursor.is_symbol("@"):
            cursor.at += 2
        version, ms = self._travel(cursor, relation)
        end = tokens[cursor.at - 1].end
        frame = following(lambda: frame_of_name(self.session, source, version, ms))
        if any(t.is_name and t.name.lower() == _METADATA for t in tokens) and isinstance(source, Target):
            columns = tuple(frame.columns)
            frame = _with_metadata(frame)
            if _METADATA in frame.columns:
                self.out.with_metadata.append(WithMetadata(at, _alias_of(cursor) or relation.parts[-1], columns))
        private = self._private(frame, self.sql[start:end])
        edits = [Edit(start, end, private)]
        if not relation.aliased and _may_have_alias(tokens, at):
            pass_sample(cursor)
            behind = tokens[cursor.at - 1].end
            alias = quote_name(relation.parts[-1])
            edits = (
                [Edit(start, end, f"{private} AS {alias}")]
                if behind == end
                else [*edits, Edit(behind, behind, f" AS {alias}")]
            )
            edits += self._qualified(relation.parts, alias, at)
        return edits

    def _streamed(self, source: Target, cursor: Cursor) -> list[Edit]:
        start = cursor.tokens[cursor.at].start
        cursor.name()
        end = cursor.tokens[cursor.at - 1].end
        return [Edit(start, end, self._private(stream_of(self.session, source), self.sql[start:end]))]

    def _private(self, frame: DataFrame, display_name: str) -> str:
        name = self.session.private_name()
        self.out.frames[name], self.out.names[name] = frame, display_name
        return name

    def _qualified(self, parts: tuple[str, ...], alias: str, relation_at: int) -> list[Edit]:
        """Replace the table's full name before columns with its alias, as a private name has only one part."""
        prefixes = {w for w in whole_names(self.session, parts) if len(w) > 1}
        edits = []
        for at, names, cursor in names_in(self.sql, self.tokens):
            followed = cursor.is_symbol(".") and cursor.is_symbol("*", ahead=1)
            for prefix in prefixes:
                inside = len(names) > len(prefix) or (followed and len(names) == len(prefix))
                if at != relation_at and inside and names[: len(prefix)] == prefix:
                    last = at + 2 * (len(prefix) - 1)
                    edits.append(Edit(self.tokens[at].start, self.tokens[last].end, alias))
                    break
        return edits

    def _travel(self, cursor: Cursor, relation: jvm.Relation) -> tuple[int | None, int | None]:
        """The version, or the time in ms, that follows a name."""
        if relation.travel_end is None:
            return None, None
        end = relation.travel_end - self.shift
        while cursor.at < len(cursor.tokens) and cursor.tokens[cursor.at].end <= end and not cursor.is_word("OF"):
            cursor.at += 1
        if not cursor.is_word("OF"):  # ``t@v3``, which was skipped
            spelled = cursor.tokens[cursor.at - 1].text
            return (int(spelled[1:]), None) if spelled[:1] in "vV" else (None, moment_ms(self.session, f"'{spelled}'"))
        kind = cursor.tokens[cursor.at - 2].upper
        cursor.accept("OF")
        start = cursor.tokens[cursor.at].start
        while cursor.at < len(cursor.tokens) and cursor.tokens[cursor.at].end <= end:
            cursor.at += 1
        spelled = cursor.sql[start:end]
        if kind in ("VERSION", "SYSTEM_VERSION"):
            return stated_version(self.session.value(spelled, self.args)), None
        by_path = named_path(relation.parts) is not None  # Spark evaluates the time of a table by name
        condition = "DELTA_TIMESTAMP_INVALID" if by_path else "INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT"
        return None, moment_ms(self.session, spelled, self.args, condition=condition)

    def _function(self, cursor: Cursor, relation: jvm.Relation) -> list[Edit]:
        """``table_changes('name', 1, 2)`` and ``table_changes_by_path('/path', 1)``."""
        session, name = self.session, relation.parts[-1].lower()
        if name not in CHANGES or len(relation.parts) > 1:
            return []
        token = cursor.take()
        inside = cursor.brackets()
        end = cursor.tokens[cursor.at - 1].end
        sql = cursor.sql[slice(*inside)]
        values = self._constants(sql, name) if sql.strip() else []
        if not 2 <= len(values) <= 3 or not isinstance(values[0], str):
            raise InvalidArgumentError(
                f"{name} takes a table, the first version or time, and optionally the last",
                help=f"write {name}('{'/path' if name.endswith('path') else 'name'}', 1)",
                condition="DELTA_UNSUPPORTED_EXPRESSION" if 2 <= len(values) <= 3 else "INCORRECT_NUMBER_OF_ARGUMENTS",
            )
        if name == CHANGES[1]:
            target: Target | View | None = path_target(session, (DEFAULT, as_path(values[0])))
        else:
            target = resolve(session, Cursor(values[0]).name())
        if target is None and not session.spark.catalog.tableExists(values[0]):
            raise not_found([values[0]])
        if not isinstance(target, Target):
            raise InvalidArgumentError(
                f"{values[0]} is not a Delta table",
                help="pass the name of a Delta table in the catalog",
                condition="DELTA_TABLE_ONLY_OPERATION",
            )
        with stating({"DELTA_TABLE_NOT_FOUND": "DELTA_MISSING_DELTA_TABLE"}):
            frame = following(partial(changes_of, session, target, values[1:]))
        private = self._private(frame, cursor.sql[token.start : end])
        alias = "" if alias_follows(cursor) else f" AS {quote_name(name)}"
        return [Edit(token.start, end, private + alias)]

    def _constants(self, sql: str, function: str) -> list[Any]:
        """The values of a table function's arguments.  Raises ``InvalidArgumentError`` for one that is not constant."""
        try:
            return self.session.values(sql, self.args)
        except PySparkException as e:
            if not (error_condition(e) or "").startswith(_NOT_CONSTANT):
                raise
            raise InvalidArgumentError(
                f"the arguments of {function} must be constant, got {sql}",
                help="pass a version such as 3, or a time such as '2024-05-01 12:30:00'",
                condition="DELTA_CDC_NON_CONSTANT_ARGUMENT",
            ) from None

    def stars(self) -> list[Edit]:
        """The edits that exclude the DataFrames' column ``_metadata`` from ``*``.

        With ``EXCEPT`` or, before Spark 4, by listing the other columns.
        """
        out, tokens = self.out, self.tokens
        if not out.with_metadata:
            return []
        by_name = parse_release(self.session.spark.version) < (4, 0)
        around = _enclosures(tokens)
        edits = []
        for i, token in enumerate(tokens):
            if (
                token.text != "*"
                or token.kind != "symbol"
                or not i
                or (i + 1 < len(tokens) and tokens[i + 1].upper == "EXCEPT" and not by_name)
            ):
                continue
            before = tokens[i - 1]
            relations = [r for r in out.with_metadata if around[r.at] == around[i] and r.at > i]
            if before.text == "." and i > 1:
                relations = [r for r in relations if r.alias.lower() == tokens[i - 2].name.lower()]
            elif not (before.text == "," or before.upper in ("SELECT", "DISTINCT", "ALL")):
                continue
            elif relations and by_name and _joins(tokens, around, i):
                raise UnsupportedSparkError(
                    f"Spark {self.session.spark.version} cannot exclude {_METADATA} from the * of several tables",
                    help="write the name of each table before a *, or name the columns, or use PySpark 4.0 or newer",
                )
            if relations and by_name:
                columns = ", ".join(f"{quote_name(r.alias)}.{quote_name(c)}" for r in relations for c in r.columns)
                # After ``t.`` the first column needs no qualifier.
                start = len(quote_name(relations[0].alias)) + 1 if before.text == "." else 0
                edits.append(Edit(token.start, token.end, columns[start:]))
            elif relations:
                hidden = ", ".join(f"{quote_name(r.alias)}.{_METADATA}" for r in relations)
                edits.append(Edit(token.end, token.end, f" EXCEPT ({hidden})"))
        return edits


def _joins(tokens: Sequence[Token], around: Sequence[int], star: int) -> bool:
    """Whether the query with this star has several relations."""
    same = [t for i, t in enumerate(tokens) if i > star and around[i] == around[star]]
    behind = next((i for i, t in enumerate(same) if t.upper == "FROM"), len(same))
    for t in same[behind + 1 :]:
        if t.text == "," or t.upper in ("JOIN", "LATERAL"):
            return True
        if t.upper in ("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "MINUS"):
            return False
    return False


def _enclosures(tokens: Sequence[Token]) -> list[int]:
    """The index of the innermost open bracket around each token, -1 for none."""
    out, open_ = [], [-1]
    for i, t in enumerate(tokens):
        if t.kind == "symbol" and t.text == ")" and len(open_) > 1:
            open_.pop()
        out.append(open_[-1])
        if t.kind == "symbol" and t.text == "(":
            open_.append(i)
    return out


def relations_of(session: SqlSession, sql: str) -> list[jvm.Relation]:
    """The tables, views and functions that a query reads.  Raises ``ParseException``."""
    if session.classic:
        return list(jvm.relations(jvm.parse_plan(session.parser, sql)))
    from trilake.sql.spark.session.connect import relations  # late: needs sqlglot, which only Connect sessions do

    return list(relations(sql))


def _with_metadata(frame: DataFrame) -> DataFrame:
    """Add Spark's hidden column ``_metadata`` as a column, if the scan has it."""
    try:
        return frame.select("*", _METADATA)
    except PySparkException:  # the scan has no such column
        return frame


def _alias_of(cursor: Cursor) -> str | None:
    look = Cursor(cursor.sql, cursor.tokens, cursor.at)
    pass_sample(look)
    if look.accept("AS") or alias_follows(look):
        return look.part()
    return None


def _may_have_alias(tokens: Sequence[Token], at: int) -> bool:
    """Whether an alias is allowed: not in ``TABLE t`` and ``f(TABLE(t))``."""
    before = tokens[at - 1] if at else None
    if before is not None and before.text == "(" and before.kind == "symbol":
        before = tokens[at - 2] if at > 1 else None
    return before is None or before.upper not in ("TABLE", "STREAM")


def frame_of_name(
    session: SqlSession, source: Target | View, version: int | None = None, ms: int | None = None
) -> DataFrame:
    """The rows of a table or view, at a version.  Raises ``InvalidArgumentError`` for a version of a view."""
    if isinstance(source, Target):
        return frame_of(session, source, version, ms)
    if version is not None or ms is not None:
        raise InvalidArgumentError(
            f"{'.'.join(source.parts)} is a view, which has no versions",
            help="write the version in the view's query",
            condition="UNSUPPORTED_FEATURE.TIME_TRAVEL",
        )
    return view_frame(session, source)


@contextmanager
def local_views(session: SqlSession, *parts: Local, follow: bool = False) -> Iterator[None]:
    """Create views of the DataFrames under their private names for the block; ``follow`` makes derived DataFrames
    follow their tables, see :func:`~trilake.spark.live_frames.frames.follow_tables_of`."""
    frames = {name: frame for part in parts for name, frame in part.frames.items()}
    if follow:
        frames = {name: template_of(frame) for name, frame in frames.items()}
    with session.private_views(frames):
        yield


def query(session: SqlSession, sql: str, args: Args = None) -> DataFrame:
    """Run a query that may name trilake tables.  Spark's errors get positions in the original SQL."""
    local = localized(session, sql, args)
    if kind(tokenize(sql)) not in QUERIES:
        return run_local(session, local, args)
    return follow_tables_of(run_local(session, local, args, follow=True), *local.frames.values())


def run_local(session: SqlSession, local: Local, args: Args = None, *, follow: bool = False) -> DataFrame:
    """Run SQL with private names; ``follow`` as :func:`local_views`."""
    with local_views(session, local, follow=follow):
        try:
            return session.run(local.sql, args)
        except PySparkException as e:
            raise in_place(e, local) from None


def view_frame(session: SqlSession, view: View) -> DataFrame:
    """The rows of a view, with the columns that it was created with.  Raises ``SchemaMismatchError`` if its tables
    no longer have one of them."""
    temporary = view.temporary
    if temporary is not None and temporary.frame is not None and (view.query is None or is_in_cache(temporary.frame)):
        return _in_session(session.spark, renewed(temporary.frame))
    assert view.query is not None
    with in_namespace_of(session, view.query):
        frame = query(session, view.query.sql)
    if view.entry is not None:
        form = view.entry.view_form
        names = form.query_columns or frame.columns
        # Without its length, Spark would compare char(n) with its padding.
        limits = {
            f.name.lower(): {TYPE_STRING: f.metadata[TYPE_STRING]} for f in frame.schema if TYPE_STRING in f.metadata
        }
        columns = [
            F.col(quote_name(have)).cast(kind).alias(name, metadata=limits.get(have.lower(), {}))
            for have, (name, kind) in zip(names, form.columns, strict=False)
        ]
        return frame.select(*columns)
    assert temporary is not None
    if tuple(frame.columns) != temporary.query_columns:
        frame = _with_columns(frame, view.parts, temporary.query_columns)
    return frame if temporary.columns is None else frame.toDF(*temporary.columns)


def _in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The DataFrame of a view in the session that reads it: views of what is built from it are created there."""
    if session_key(frame.sparkSession) == session_key(spark):
        return frame
    if is_connect(spark):
        return frame_of_plan(connect_plan(frame), spark)
    return make(lambda frame: dataset_of(spark, query_execution(frame).analyzed()), frame)


def _with_columns(frame: DataFrame, parts: tuple[str, ...], names: Sequence[str]) -> DataFrame:
    there = {n.lower() for n in frame.columns}
    lost = [n for n in names if n.lower() not in there]
    if lost:
        raise SchemaMismatchError(
            f"the view {'.'.join(parts)} was created with the column {lost[0]}, which its query no longer has",
            help="create the view again",
            column=lost[0],
            condition="INCOMPATIBLE_VIEW_SCHEMA_CHANGE",
        )
    return frame.select(*map(quote_name, names))


@contextmanager
def in_namespace_of(session: SqlSession, view: Query) -> Iterator[None]:
    """Make the database of a view's query the current one for the block."""
    spark = session.spark
    before = str(spark.catalog.currentDatabase())
    if view.database.lower() == before.lower():
        yield
        return
    spark.catalog.setCurrentDatabase(view.database)
    try:
        yield
    finally:
        spark.catalog.setCurrentDatabase(before)
