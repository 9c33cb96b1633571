"""A cursor over tokens, the base of all parsers here, and errors with a position."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from trilake.common.text import string_value
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.edits import line_and_position, marked
from trilake.sql.parser.tokens import Token, tokenize

#: Type suffixes of number literals, such as ``1L`` and ``1.5BD``.
_TYPE_LETTERS = re.compile(r"(?:BD|[LSYDF])$", re.IGNORECASE)
#: Most characters of a BIGINT, with its sign.
_LONGEST = 20


class SyntaxProblem(Exception):
    """A syntax error, with its line and position in the SQL."""

    def __init__(self, line: int, position: int, near: str, hint: str = "") -> None:
        self.line, self.position, self.near, self.hint = line, position, near, hint
        super().__init__(hint or f"Syntax error at or near {near}")


class SqlTextError(InvalidArgumentError):
    """A statement that is valid in neither Spark's grammar nor Delta's."""

    code = "PARSE_SYNTAX_ERROR"

    @classmethod
    def at(cls, sql: str, problem: SyntaxProblem) -> SqlTextError:
        message = f"Syntax error at or near {problem.near}"
        return cls(message, help=problem.hint or None, text=sql, line=problem.line, position=problem.position)

    @classmethod
    def of(cls, sql: str, error: Any) -> SqlTextError:
        details = (getattr(error, "errors", None) or [{}])[0]
        line, column = int(details.get("line") or 1), int(details.get("col") or 1)
        highlight = details.get("highlight")
        near = f"Syntax error at or near '{highlight}'" if highlight else "Syntax error"
        position = max(0, column - len(highlight or "x"))
        return cls(near, text=sql, line=line, position=position)

    def __str__(self) -> str:
        line, position = self.context.get("line"), self.context.get("position")
        help = f". Help: {self.help}" if self.help else ""
        shown = marked(str(self.context.get("text", "")), int(line or 1), int(position or 0))
        return f"[{self.code}] {self.message} (line {line}, pos {position}){help}\n\n== SQL ==\n{shown}"


class Cursor:
    """Reads tokens one by one.  Words are case-insensitive.

    ``is_...`` look ahead; ``accept`` skips the given words if they follow, and returns whether they do; the other
    methods raise ``SyntaxProblem``.
    """

    def __init__(
        self, sql: str, tokens: Sequence[Token] | None = None, at: int = 0, *, stop: int | None = None
    ) -> None:
        self.sql = sql
        self.tokens = tokenize(sql) if tokens is None else tokens
        self.at = at
        #: The position in the SQL after the last token.
        self.stop = len(sql.rstrip()) if stop is None else stop

    @property
    def token(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        at = self.at + ahead
        return tuple(token.upper for token in self.tokens[at : at + len(words)]) == words

    def is_any(self, *words: str) -> bool:
        return self.token is not None and self.token.upper in words and self.token.kind == "word"

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        at = self.at + ahead
        return at < len(self.tokens) and self.tokens[at].symbol == symbol

    @property
    def done(self) -> bool:
        """Whether nothing follows but semicolons."""
        return all(t.symbol == ";" for t in self.tokens[self.at :])

    def accept(self, *words: str) -> bool:
        if not self.is_word(*words):
            return False
        self.at += len(words)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        if not self.is_symbol(symbol):
            return False
        self.at += 1
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                self.fail()

    def expect_symbol(self, symbol: str) -> None:
        if not self.accept_symbol(symbol):
            self.fail()

    def take(self) -> Token:
        """Skip a token, and return it."""
        token = self.token
        if token is None:
            self.fail()
        self.at += 1
        return token

    def name(self) -> tuple[str, ...]:
        """A name of one or more parts: ``a``, ``a.b``, ``delta.`/path```."""
        parts = [self.part()]
        while self.is_symbol(".") and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].is_name:
            self.at += 1
            parts.append(self.part())
        return tuple(parts)

    def part(self) -> str:
        token = self.token
        if token is None or not token.is_name:
            self.fail()
        self.at += 1
        return token.name

    def string(self) -> str:
        """A string literal, or several in a row as one."""
        first = self.at
        out = ""
        while self.token is not None and self.token.kind == "string":
            out += string_value(self.take().text)
        return out if self.at > first else self.fail()

    def number(self) -> str:
        """A number literal, with its sign and without its type suffix."""
        sign = "-" if self.accept_symbol("-") else ""
        token = self.token
        if token is None or token.kind != "number":
            self.fail()
        self.at += 1
        return sign + _TYPE_LETTERS.sub("", token.text)

    def whole_number(self) -> int:
        """A whole number that a BIGINT holds."""
        digits = self.number()
        if not digits.lstrip("-").isdecimal() or len(digits) > _LONGEST or not -(2**63) <= int(digits) < 2**63:
            self.at -= 1
            self.fail("expected an integer, such as 3")
        return int(digits)

    def brackets(self) -> tuple[int, int]:
        """Skip a pair of brackets; return the positions of its content."""
        self.expect_symbol("(")
        start, depth = self.tokens[self.at - 1].end, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take().symbol, 0)
        return start, self.tokens[self.at - 1].start

    def bracketed(self) -> str:
        """Skip a pair of brackets; return its content."""
        return self.sql[slice(*self.brackets())]

    def inside(self) -> Cursor:
        """Skip a pair of brackets; return a cursor over its content."""
        first = self.at + 1
        _, stop = self.brackets()
        return Cursor(self.sql, self.tokens[first : self.at - 1], stop=stop)

    def pieces(self) -> list[Cursor]:
        """Skip a list in brackets; return a cursor over each item."""
        inside, out = self.inside(), []
        while inside.at < len(inside.tokens):
            first = inside.at
            inside.until(symbols=",")
            after = inside.tokens[inside.at :]
            stop = after[0].start if after else inside.stop
            out.append(Cursor(self.sql, inside.tokens[first : inside.at], stop=stop))
            if not inside.accept_symbol(","):
                break
        return out

    def listed(self) -> list[str]:
        """Skip a list, in brackets or up to the end; return its items."""
        return items(self.bracketed() if self.is_symbol("(") else self.sql_until())

    def sql_since(self, first: int) -> str:
        """The SQL of the tokens from ``first`` up to here."""
        return "" if first == self.at else self.sql[self.tokens[first].start : self.tokens[self.at - 1].end]

    def sql_until(self, *words: str, symbols: str = "") -> str:
        """Skip up to one of the words or symbols outside all brackets; return the SQL before it, without semicolons."""
        return self.sql[slice(*self.until(*words, symbols=symbols))].rstrip("; \n\t")

    def until(self, *words: str, symbols: str = "") -> tuple[int, int]:
        """Skip up to one of the words or symbols outside all brackets; return the positions of the SQL before it."""
        first, depth, cases, types = self.at, 0, 0, 0
        while self.token is not None:
            token, symbol = self.token, self.token.symbol
            if symbol and symbol in "<>":
                # The brackets of a type, not a comparison.
                begins = self.at > 0 and self.tokens[self.at - 1].upper in ("ARRAY", "MAP", "STRUCT")
                types += (symbol == "<" and bool(types or begins)) - (symbol == ">" and bool(types))
            elif types:
                pass
            elif symbol:
                if depth == 0 and symbol in f"{symbols})]":
                    break
                depth += (symbol in "([") - (symbol in ")]")
            elif token.upper == "CASE" and not self._is_part_of_name():
                cases += 1
            elif token.upper == "END" and cases:
                cases -= 1
            elif depth == 0 and cases == 0 and token.upper in words and not self._is_part_of_name():
                break
            self.at += 1
        if first == self.at:
            end = self.tokens[first].start if first < len(self.tokens) else len(self.sql)
            return end, end
        return self.tokens[first].start, self.tokens[self.at - 1].end

    def _is_part_of_name(self) -> bool:
        return self.at > 0 and self.is_symbol(".", ahead=-1)

    def rest(self) -> str:
        """Skip to the end; return the SQL up to there, without trailing semicolons."""
        first, self.at = self.at, len(self.tokens)
        last = next((i for i in reversed(range(first, self.at)) if self.tokens[i].symbol != ";"), None)
        return "" if last is None else self.sql[self.tokens[first].start : self.tokens[last].end]

    def end(self) -> None:
        if not self.done:
            self.fail()

    def fail(self, hint: str = "") -> NoReturn:
        token = self.token
        start = self.stop if token is None else token.start
        near = self.sql[start : start + 1].strip() if token is None else token.text
        token_text = f"'{near}'" if near else "end of input"
        raise SyntaxProblem(*line_and_position(self.sql, start), token_text, hint)


def items(sql: str) -> list[str]:
    """Split a list at the commas outside all brackets.

    >>> items("a, f(b, c), 'x,y'")
    ['a', 'f(b, c)', "'x,y'"]
    """
    return [sql[a:b] for a, b in spans(Cursor(sql))]


def spans(cursor: Cursor) -> Iterator[tuple[int, int]]:
    """The positions of a list's items, up to the end."""
    while cursor.token is not None:
        yield cursor.until(symbols=",")
        if not cursor.accept_symbol(","):
            return


def name_parts(name: object) -> tuple[str, ...] | None:
    """Parse a string as a name; ``None`` for anything else.

    >>> name_parts("db.`a b`"), name_parts("a b")
    (('db', 'a b'), None)
    """
    if not isinstance(name, str):
        return None
    cursor = Cursor(name)
    try:
        parts = cursor.name()
        cursor.end()
    except SyntaxProblem:
        return None
    return parts
