"""SQL scripts over trilake tables: statements run one by one, with session variables as local variables.

A session variable of the same name is restored at the end of the compound statement.  A script without trilake tables
runs in Spark as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from trilake.common.text import quote_name, quote_parts
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.spark.session.analysis_errors import analysis_error
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.literals import Args
from trilake.sql.parser.maintenance import FIRST_WORDS
from trilake.sql.parser.script import (
    Branches,
    Compound,
    Declare,
    DeclareCondition,
    For,
    Handler,
    Leave,
    Loop,
    Plain,
    Statement,
    parse_script,
    sql_in,
)
from trilake.sql.parser.statements import WITHOUT_TABLE, kind
from trilake.sql.parser.tokens import tokenize
from trilake.sql.spark.session.placeholders import literal, with_parameters
from trilake.sql.spark.session.relations import names_trilake_table
from trilake.sql.spark.session.session import SqlSession, nothing
from trilake.table.registry import format_of_provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERIES = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE"))


def run_script(
    session: SqlSession, sql: str, args: Args, *, run: Callable[[SqlSession, str, Args], DataFrame]
) -> DataFrame | None:
    """Run a script; return the rows of its last statement, ``None`` for a script without trilake tables.  Raises the
    error of a statement if no handler of the script matches it."""
    script = parse_script(with_parameters(session, sql, args))
    if not any(_names_trilake(session, t) for t in sql_in(script)):
        return None
    return _Script(session, run).result(script)


def _names_trilake(session: SqlSession, sql: str) -> bool:
    tokens = tokenize(sql)
    word = kind(tokens)
    if word == "EXECUTE":  # its SQL is a value
        return True
    using = any(a.upper == "USING" and format_of_provider(b.name) is not None for a, b in pairwise(tokens))
    return (using and word in ("CREATE", "REPLACE")) or names_trilake_table(session, sql, tokens)


class _LeaveScope(Exception):
    """Leaves a loop or compound statement; with ``again``, the loop continues with its next iteration."""

    def __init__(self, scope: object, *, again: bool = False) -> None:
        self.scope, self.again = scope, again
        super().__init__("left")


@dataclass(eq=False)
class _Scope:
    label: str | None
    #: The statement that restores each variable declared here.
    variables: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str | None] = field(default_factory=dict)
    handlers: list[Handler] = field(default_factory=list)


class _Script:
    def __init__(self, session: SqlSession, run: Callable[[SqlSession, str, Args], DataFrame]) -> None:
        self.session, self.run_statement = session, run
        self.scopes: list[_Scope] = []
        self.rows: Any = None
        self.schema: Any = None

    def result(self, script: Compound) -> DataFrame:
        self._compound(script)
        if self.schema is None or not self.schema.fields:
            return nothing(self.session)
        return self.session.spark.createDataFrame(self.rows, self.schema)

    def _execute(self, statement: Statement) -> None:
        if isinstance(statement, Compound):
            self._compound(statement)
        elif isinstance(statement, Branches):
            self._branches(statement)
        elif isinstance(statement, Loop):
            self._loop(statement)
        elif isinstance(statement, For):
            self._for(statement)
        elif isinstance(statement, Leave):
            raise _LeaveScope(self._labelled(statement.label), again=statement.again)
        elif isinstance(statement, Handler):
            self.scopes[-1].handlers.append(statement)
        elif isinstance(statement, DeclareCondition):
            self.scopes[-1].conditions[statement.name] = statement.state
        elif isinstance(statement, Declare):
            self._guarded(lambda: self._declare(statement))
        else:
            self._guarded(lambda: self._plain(statement))

    def _all(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            self._execute(statement)

    def _compound(self, compound: Compound) -> None:
        with self._scope(compound.label):
            self._all(compound.body)

    def _branches(self, statement: Branches) -> None:
        for condition, body in statement.branches:
            holds = self._holds(condition)
            if holds is None:
                return
            if holds:
                self._all(body)
                return
        self._all(statement.otherwise)

    def _loop(self, loop: Loop) -> None:
        with self._scope(loop.label) as scope:
            while loop.before is None or self._holds(loop.before):
                self._round(scope, loop.body)
                if loop.after is not None and self._holds(loop.after) is not False:
                    return

    def _for(self, statement: For) -> None:
        result: list[Any] = []

        def collect() -> None:
            frame = self.run_statement(self.session, self._unqualified(statement.query), None)
            result.extend((frame.schema, frame.collect()))

        self._guarded(collect)
        if not result:
            return
        schema, rows = result
        with self._scope(statement.label) as loop:
            for row in rows:
                with self._scope(statement.variable):
                    for f, value in zip(schema.fields, row, strict=True):
                        self._declare_one(f.name, f"{f.dataType.simpleString()} DEFAULT {literal(self.session, value)}")
                    self._round(loop, statement.body)

    def _round(self, scope: _Scope, body: tuple[Statement, ...]) -> None:
        height = len(self.scopes)
        try:
            self._all(body)
        except _LeaveScope as left:
            if left.scope is not scope or not left.again:
                raise
            assert len(self.scopes) == height

    def _plain(self, statement: Plain) -> None:
        sql = self._assignment(self._unqualified(statement.sql))
        frame = self.run_statement(self.session, sql, None)
        if kind(tokenize(sql)) == "SET":
            return
        # A query runs now, even if its rows are not the result.
        self.schema = frame.schema
        self.rows = frame.collect() if kind(tokenize(sql)) in _QUERIES or frame.schema.fields else []

    def _declare(self, statement: Declare) -> None:
        for name in statement.names:
            self._declare_one(name, self._unqualified(statement.rest))

    def _declare_one(self, name: str, rest: str) -> None:
        variables = self.scopes[-1].variables
        if name.lower() not in variables:
            variables[name.lower()] = self._restoring(name)
        self.session.run(f"DECLARE OR REPLACE VARIABLE {quote_name(name)} {rest}")

    def _restoring(self, name: str) -> str:
        """The statement that restores a variable's current value."""
        try:
            frame = self.session.run(f"SELECT system.session.{quote_name(name)} AS v")
            value = literal(self.session, frame.collect()[0][0])
        except PySparkException:
            return f"DROP TEMPORARY VARIABLE IF EXISTS {quote_name(name)}"
        kind_ = frame.schema.fields[0].dataType.simpleString()
        return f"DECLARE OR REPLACE VARIABLE {quote_name(name)} {kind_} DEFAULT {value}"

    def _assignment(self, sql: str) -> str:
        """Turn ``SET x = 1`` into ``SET VAR x = 1`` for a variable of the script."""
        cursor = Cursor(sql)
        if not cursor.accept("SET") or cursor.is_any("VAR", "VARIABLE") or cursor.token is None:
            return sql
        first = cursor.token
        name = first.name if first.is_name else None
        if name is None and first.text == "(":
            return f"SET VAR {sql[first.start :]}"
        if name is not None and any(name.lower() in s.variables for s in self.scopes):
            return f"SET VAR {sql[first.start :]}"
        return sql

    def _unqualified(self, sql: str) -> str:
        labels = {s.label.lower(): s.variables for s in self.scopes if s.label is not None and s.variables}
        if not labels:
            return sql
        tokens, edits = tokenize(sql), []
        for i in range(len(tokens) - 2):
            label, dot, name = tokens[i : i + 3]
            qualified = label.is_name and dot.text == "." and name.is_name
            if qualified and (i == 0 or tokens[i - 1].text != "."):
                declared = labels.get(label.name.lower())
                if declared is not None and name.name.lower() in declared:
                    edits.append(Edit(label.start, name.start, ""))
        return Edited.of(sql, edits).sql if edits else sql

    def _holds(self, condition: str) -> bool | None:
        """Whether a condition is true; ``None`` if it failed and a CONTINUE handler ran."""
        answers: list[bool] = []

        def ask() -> None:
            frame = self.run_statement(self.session, f"SELECT {self._unqualified(condition)} AS holds", None)
            answers.append(frame.collect()[0][0] is True)

        self._guarded(ask)
        return answers[0] if answers else None

    @contextmanager
    def _scope(self, label: str | None) -> Iterator[_Scope]:
        scope = _Scope(label)
        self.scopes.append(scope)
        height = len(self.scopes)
        try:
            yield scope
        except _LeaveScope as left:
            if left.scope is not scope:
                raise
        finally:
            del self.scopes[height - 1 :]
            for statement in reversed(scope.variables.values()):
                self.session.run(statement)

    def _labelled(self, label: str) -> _Scope:
        for scope in reversed(self.scopes):
            if scope.label is not None and scope.label.lower() == label.lower():
                return scope
        raise AssertionError(f"Spark's parser knows the label {label}")

    def _guarded(self, act: Callable[[], None]) -> None:
        """Call ``act``; if it fails, run the nearest matching handler."""
        try:
            act()
        except (PySparkException, TrilakeError) as e:
            error = analysis_error(e) if isinstance(e, TrilakeError) else e
            fitting = self._handler(error)
            if fitting is None:
                raise
            height, scope, handler = fitting
            inner, self.scopes = self.scopes, self.scopes[:height]
            handlers, scope.handlers = scope.handlers, []  # errors in a handler go to the outer handlers
            try:
                self._execute(handler.body)
            finally:
                self.scopes, scope.handlers = inner, handlers
            if handler.leaves:
                raise _LeaveScope(scope) from None

    def _handler(self, error: BaseException) -> tuple[int, _Scope, Handler] | None:
        name = str(_call_first(error, "getCondition", "getErrorClass") or "").upper()
        state = str(_call_first(error, "getSqlState") or "HY000")
        for height in range(len(self.scopes), 0, -1):
            scope = self.scopes[height - 1]
            conditions = {k: v for s in self.scopes[:height] for k, v in s.conditions.items()}
            best = max(((_fit(h, name, state, conditions), -i) for i, h in enumerate(scope.handlers)), default=(0, 0))
            if best[0]:
                return height, scope, scope.handlers[-best[1]]
        return None


def _call_first(error: BaseException, *methods: str) -> object:
    for method in methods:
        ask = getattr(error, method, None)
        if ask is not None and (answer := ask()) is not None:
            return answer
    return None


def _fit(handler: Handler, name: str, state: str, conditions: dict[str, str | None]) -> int:
    """How exactly a handler matches an error; 0 if it does not."""
    if name and name in handler.names:
        return 3
    states = {*handler.states, *(conditions[n] for n in handler.names if n in conditions)}
    if state in states:
        return 2
    if handler.not_found and state.startswith("02"):
        return 1
    return 1 if handler.any and not state.startswith(("00", "01", "02")) else 0


def execute_immediate(
    session: SqlSession, cursor: Cursor, args: Args, *, run: Callable[[SqlSession, str, Args], DataFrame]
) -> DataFrame | None:
    """Run a statement over trilake tables; ``None`` to leave it to Spark."""
    sql = session.value(cursor.sql_until("INTO", "USING"), args)
    into: list[tuple[str, ...]] = []
    if cursor.accept("INTO"):
        into = [Cursor(t).name() for t in items(cursor.sql_until("USING"))]
    parameters: Args = None
    if cursor.accept("USING"):
        parameters = _parameters(session, cursor.rest(), args)
    if not isinstance(sql, str):
        return None
    if kind(tokenize(sql)) not in WITHOUT_TABLE | FIRST_WORDS and not names_trilake_table(session, sql):
        return None
    frame = run(session, sql, parameters)
    if not into:
        return frame
    rows = frame.limit(2).collect()
    if len(rows) > 1:
        raise InvalidArgumentError(
            "EXECUTE IMMEDIATE ... INTO expects at most one row, but the query returned more",
            help="add LIMIT 1",
            condition="ROW_SUBQUERY_TOO_MANY_ROWS",
        )
    values = [None] * len(into) if not rows else list(rows[0])
    for name, value in zip(into, values, strict=True):
        session.run(f"SET VAR {quote_parts(name)} = {literal(session, value)}")
    return frame.limit(0)


def _parameters(session: SqlSession, sql: str, args: Args) -> Args:
    """The values of USING, by name or in order."""
    sql = sql.strip()
    if sql.startswith("(") and Cursor(sql).brackets()[1] + 1 >= len(sql):
        sql = sql[1:-1]
    parts = items(sql)
    row = session.run(f"SELECT {', '.join(parts)}", args).collect()[0]
    names = [name for name in map(_name, parts) if name is not None]
    return dict(zip(names, row, strict=True)) if len(names) == len(parts) else list(row)


def _name(sql: str) -> str | None:
    cursor = Cursor(sql)
    cursor.until("AS")
    return cursor.part() if cursor.accept("AS") else None
