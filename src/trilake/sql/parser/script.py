"""Parse SQL scripts, ``BEGIN ... END``, into a tree of statements.

Spark's parser has already accepted the script, so this only finds where each part begins and ends.  Statements stay
strings until they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from trilake.common.text import string_value
from trilake.sql.parser.cursor import Cursor


@dataclass(frozen=True)
class Plain:
    """Any other statement."""

    sql: str


@dataclass(frozen=True)
class Declare:
    """Local variables; ``rest`` is type and default."""

    names: tuple[str, ...]
    rest: str


@dataclass(frozen=True)
class DeclareCondition:
    """A name for an error condition, with its SQLSTATE, if any."""

    name: str
    state: str | None


@dataclass(frozen=True)
class Handler:
    """Runs when a statement fails; ``leaves`` is EXIT, which ends the compound statement.

    ``names`` are error conditions, ``states`` SQLSTATEs; ``any`` is SQLEXCEPTION.
    """

    leaves: bool
    names: tuple[str, ...]
    states: tuple[str, ...]
    any: bool
    not_found: bool
    body: Statement


@dataclass(frozen=True)
class Compound:
    """``BEGIN ... END``."""

    label: str | None
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Branches:
    """IF and CASE: the first true condition decides what runs."""

    branches: tuple[tuple[str, tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """LOOP, WHILE and REPEAT: ``before`` must be true for each iteration, ``after`` ends the loop."""

    label: str | None
    before: str | None
    body: tuple[Statement, ...]
    after: str | None


@dataclass(frozen=True)
class For:
    """FOR: the body runs for each row of a query, whose columns are variables."""

    label: str | None
    variable: str | None
    query: str
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Leave:
    """LEAVE, or ITERATE with ``again``."""

    label: str
    again: bool


Statement: TypeAlias = Plain | Declare | DeclareCondition | Handler | Compound | Branches | Loop | For | Leave

_ENDS = ("END", "ELSE", "ELSEIF", "WHEN", "UNTIL")


def parse_script(sql: str) -> Compound:
    """The tree of a script.  Raises ``SyntaxProblem``.

    >>> sql = "BEGIN DECLARE n INT DEFAULT 1; IF n > 0 THEN SELECT CASE WHEN n = 1 THEN 2 END; END IF; END"
    >>> script = parse_script(sql)
    >>> script.body[0]
    Declare(names=('n',), rest='INT DEFAULT 1')
    >>> script.body[1].branches
    (('n > 0', (Plain(sql='SELECT CASE WHEN n = 1 THEN 2 END'),)),)
    """
    cursor = Cursor(sql)
    statement = _statement(cursor)
    cursor.end()
    if not isinstance(statement, Compound):
        cursor.fail()
    return statement


def sql_in(statement: Statement) -> list[str]:
    """The SQL of all statements, queries and conditions in a tree."""
    match statement:
        case Plain(sql):
            return [sql]
        case Declare(_, rest):
            return [f"DECLARE {rest}"]
        case Handler():
            return sql_in(statement.body)
        case Compound(_, body):
            out: list[str] = []
        case Branches(branches, body):
            out = [f"SELECT {condition}" for condition, _ in branches]
            body = tuple(s for _, statements in branches for s in statements) + body
        case Loop(_, before, body, after):
            out = [f"SELECT {c}" for c in (before, after) if c is not None]
        case For(_, _, query, body):
            out = [query]
        case _:
            return []
    return out + [t for s in body for t in sql_in(s)]


def _statements(cursor: Cursor) -> tuple[Statement, ...]:
    out: list[Statement] = []
    while not cursor.is_any(*_ENDS):
        if cursor.token is None:
            cursor.fail()
        out.append(_statement(cursor))
        cursor.expect_symbol(";")
    return tuple(out)


def _statement(cursor: Cursor) -> Statement:
    label = None
    if cursor.token is not None and cursor.token.is_name and cursor.is_symbol(":", ahead=1):
        label = cursor.part()
        cursor.expect_symbol(":")
    if cursor.accept("BEGIN"):
        if cursor.accept("NOT"):
            cursor.expect("ATOMIC")
        body = _statements(cursor)
        cursor.expect("END")
        _closing_label(cursor, label)
        return Compound(label, body)
    if cursor.accept("WHILE"):
        before = _sql_before(cursor, "DO")
        return Loop(label, before, _ended(cursor, "WHILE", label), None)
    if cursor.accept("LOOP"):
        return Loop(label, None, _ended(cursor, "LOOP", label), None)
    if cursor.accept("REPEAT"):
        body = _statements(cursor)
        cursor.expect("UNTIL")
        after = _sql_before(cursor, "END")
        _close(cursor, "REPEAT", label)
        return Loop(label, None, body, after)
    if cursor.accept("FOR"):
        variable = cursor.part() if cursor.is_word("AS", ahead=1) else None
        if variable is not None:
            cursor.expect("AS")
        query = _sql_before(cursor, "DO")
        return For(label, variable, query, _ended(cursor, "FOR", label))
    for word in ("IF", "CASE"):
        if cursor.accept(word):
            return _branches(cursor, word)
    if cursor.is_any("LEAVE", "ITERATE"):
        return Leave(again=cursor.take().upper == "ITERATE", label=cursor.part())
    if cursor.accept("DECLARE"):
        return _declare(cursor)
    return Plain(cursor.sql_until(symbols=";"))


def _branches(cursor: Cursor, word: str) -> Branches:
    compared = None if word == "IF" or cursor.is_word("WHEN") else cursor.sql_until("WHEN")
    branches: list[tuple[str, tuple[Statement, ...]]] = []
    while (word == "IF" and not branches) or cursor.accept("ELSEIF" if word == "IF" else "WHEN"):
        value = _sql_before(cursor, "THEN")
        condition = value if compared is None else f"({compared}) = ({value})"
        branches.append((condition, _statements(cursor)))
    otherwise = _statements(cursor) if cursor.accept("ELSE") else ()
    cursor.expect("END", word)
    return Branches(tuple(branches), otherwise)


def _declare(cursor: Cursor) -> Statement:
    if cursor.is_any("EXIT", "CONTINUE") and cursor.is_word("HANDLER", ahead=1):
        return _handler(cursor)
    if cursor.is_word("CONDITION", ahead=1):
        name = cursor.part()
        cursor.expect("CONDITION")
        state = None
        if cursor.accept("FOR"):
            cursor.expect("SQLSTATE")
            cursor.accept("VALUE")
            state = cursor.string()
        return DeclareCondition(name.upper(), state)
    cursor.accept("OR", "REPLACE")
    cursor.accept("VARIABLE")
    names = [cursor.part()]
    while cursor.accept_symbol(","):
        names.append(cursor.part())
    return Declare(tuple(names), cursor.sql_until(symbols=";"))


def _handler(cursor: Cursor) -> Handler:
    leaves = cursor.take().upper == "EXIT"
    cursor.expect("HANDLER", "FOR")
    names: list[str] = []
    states: list[str] = []
    everything = not_found = False
    while True:
        if cursor.accept("SQLEXCEPTION"):
            everything = True
        elif cursor.accept("NOT", "FOUND"):
            not_found = True
        elif cursor.accept("SQLSTATE"):
            cursor.accept("VALUE")
            states.append(string_value(cursor.take().text))
        else:
            names.append(".".join(cursor.name()).upper())
        if not cursor.accept_symbol(","):
            break
    return Handler(leaves, tuple(names), tuple(states), everything, not_found, _statement(cursor))


def _ended(cursor: Cursor, word: str, label: str | None) -> tuple[Statement, ...]:
    """The body of a loop, from ``DO`` (LOOP has none) to its end."""
    cursor.accept("DO")
    body = _statements(cursor)
    _close(cursor, word, label)
    return body


def _close(cursor: Cursor, word: str, label: str | None) -> None:
    cursor.expect("END", word)
    _closing_label(cursor, label)


def _closing_label(cursor: Cursor, label: str | None) -> None:
    if label is not None and cursor.token is not None and cursor.token.is_name:
        cursor.part()


def _sql_before(cursor: Cursor, word: str) -> str:
    """The SQL up to a word, which is skipped unless it is END."""
    sql = cursor.sql_until(word)
    if word != "END":
        cursor.expect(word)
    return sql
