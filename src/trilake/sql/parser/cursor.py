"""A cursor over tokens, on which all parsers here are built."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from trilake.sql.parser.places import Place, place_of
from trilake.sql.parser.tokens import Token, tokenize, unquoted

#: What a number ends with that has the type of BIGINT, SMALLINT, TINYINT, DOUBLE, FLOAT or DECIMAL.
_TYPE_LETTERS = re.compile(r"(?:BD|[LSYDF])$", re.IGNORECASE)
#: Characters of a BIGINT at most, with its sign.
_LONGEST = 20


class SyntaxProblem(Exception):
    """A string that a grammar here does not take, and the place where that shows."""

    def __init__(self, place: Place, near: str, hint: str = "") -> None:
        self.place, self.near, self.hint = place, near, hint
        super().__init__(hint or f"Syntax error at or near {near}")


class Cursor:
    """Reads tokens one after the other.  Words are compared without regard to case."""

    def __init__(self, text: str, tokens: Sequence[Token] | None = None, at: int = 0) -> None:
        self.text = text
        self.tokens = tokenize(text) if tokens is None else tokens
        self.at = at

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token | None:
        """The next token, ``None`` at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether these words follow."""
        for i, word in enumerate(words):
            at = self.at + ahead + i
            if at >= len(self.tokens) or self.tokens[at].upper != word:
                return False
        return True

    def is_any(self, *words: str) -> bool:
        """Whether one of the words follows."""
        return self.token is not None and self.token.upper in words and self.token.kind == "word"

    def is_symbol(self, text: str, ahead: int = 0) -> bool:
        """Whether a symbol follows."""
        at = self.at + ahead
        return at < len(self.tokens) and self.tokens[at].kind == "symbol" and self.tokens[at].text == text

    @property
    def done(self) -> bool:
        """Whether nothing follows but semicolons."""
        return all(t.kind == "symbol" and t.text == ";" for t in self.tokens[self.at :])

    # --- taking ------------------------------------------------------------------------------------------------------

    def accept(self, *words: str) -> bool:
        """Go past these words, if they follow."""
        if not self.is_word(*words):
            return False
        self.at += len(words)
        return True

    def accept_symbol(self, text: str) -> bool:
        """Go past a symbol, if it follows."""
        if not self.is_symbol(text):
            return False
        self.at += 1
        return True

    def expect(self, *words: str) -> None:
        """Go past these words.  Raises ``SyntaxProblem``."""
        for word in words:
            if not self.accept(word):
                self.fail()

    def expect_symbol(self, text: str) -> None:
        """Go past a symbol.  Raises ``SyntaxProblem``."""
        if not self.accept_symbol(text):
            self.fail()

    def take(self) -> Token:
        """The next token, which is gone past.  Raises ``SyntaxProblem`` at the end."""
        token = self.token
        if token is None:
            self.fail()
        self.at += 1
        return token

    def name(self) -> tuple[str, ...]:
        """A name of one or more parts: ``a``, ``a.b``, ``delta.`/path```.  Raises ``SyntaxProblem``."""
        parts = [self.part()]
        while self.is_symbol(".") and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].is_name:
            self.at += 1
            parts.append(self.part())
        return tuple(parts)

    def part(self) -> str:
        """One part of a name."""
        token = self.token
        if token is None or not token.is_name:
            self.fail()
        self.at += 1
        return token.name

    def string(self) -> str:
        """A string, or several that follow each other.  Raises ``SyntaxProblem``."""
        token = self.token
        if token is None or token.kind != "string":
            self.fail()
        out = ""
        while self.token is not None and self.token.kind == "string":
            out += unquoted(self.take())
        return out

    def number(self) -> str:
        """A number's text, with its sign and without the letters of its type.  Raises ``SyntaxProblem``."""
        sign = "-" if self.accept_symbol("-") else ""
        token = self.token
        if token is None or token.kind != "number":
            self.fail()
        self.at += 1
        return sign + _TYPE_LETTERS.sub("", token.text)

    def whole_number(self) -> int:
        """A whole number that a BIGINT holds.  Raises ``SyntaxProblem``."""
        text = self.number()
        if not text.lstrip("-").isdecimal() or len(text) > _LONGEST or not -(2**63) <= int(text) < 2**63:
            self.at -= 1
            self.fail("expected a whole number, such as 3")
        return int(text)

    def brackets(self) -> tuple[int, int]:
        """Go past a pair of brackets and what is in it; the positions between them.  Raises ``SyntaxProblem``."""
        self.expect_symbol("(")
        start, depth = self.tokens[self.at - 1].end, 1
        while depth:
            token = self.take()
            if token.kind == "symbol":
                depth += {"(": 1, ")": -1}.get(token.text, 0)
        return start, self.tokens[self.at - 1].start

    def until(self, *words: str, symbols: str = "") -> tuple[int, int]:
        """Go forward to one of the words or symbols outside of all brackets; the positions of what was passed."""
        first, depth, cases, types = self.at, 0, 0, 0
        while self.token is not None:
            token = self.token
            if token.kind == "symbol" and token.text in "<>":
                # The brackets of a type, and no comparison.
                begins = self.at > 0 and self.tokens[self.at - 1].upper in ("ARRAY", "MAP", "STRUCT")
                if token.text == "<" and (types or begins):
                    types += 1
                elif token.text == ">" and types:
                    types -= 1
            elif types:
                pass
            elif token.kind == "symbol":
                if depth == 0 and token.text in symbols and token.text:
                    break
                if token.text in "([":
                    depth += 1
                elif token.text in ")]":
                    if depth == 0:
                        break
                    depth -= 1
            elif token.upper == "CASE" and not self._is_part_of_name():
                cases += 1
            elif token.upper == "END" and cases:
                cases -= 1
            elif depth == 0 and cases == 0 and token.upper in words and not self._is_part_of_name():
                break
            self.at += 1
        if first == self.at:
            end = self.tokens[first].start if first < len(self.tokens) else len(self.text)
            return end, end
        return self.tokens[first].start, self.tokens[self.at - 1].end

    def _is_part_of_name(self) -> bool:
        """Whether the word is a part of ``a.word``."""
        return self.at > 0 and self.is_symbol(".", ahead=-1)

    def rest(self) -> str:
        """The text that is left, without semicolons at its end."""
        if self.token is None:
            return ""
        start, tokens = self.token.start, list(self.tokens)
        while tokens and tokens[-1].kind == "symbol" and tokens[-1].text == ";":
            tokens.pop()
        self.at = len(self.tokens)
        return self.text[start : tokens[-1].end] if tokens and tokens[-1].end > start else ""

    def end(self) -> None:
        """Raises ``SyntaxProblem`` where something follows."""
        if not self.done:
            self.fail()

    def fail(self, hint: str = "") -> NoReturn:
        """Raise ``SyntaxProblem`` for the next token."""
        token = self.token
        start = len(self.text.rstrip()) if token is None else token.start
        token_text = "end of input" if token is None else f"'{token.text}'"
        raise SyntaxProblem(place_of(self.text, start), token_text, hint)


def name_parts(text: object) -> tuple[str, ...] | None:
    """The parts of a name that is all of a string; ``None`` for what is not a name.

    >>> name_parts("db.`a b`"), name_parts("a b")
    (('db', 'a b'), None)
    """
    if not isinstance(text, str):
        return None
    cursor = Cursor(text)
    try:
        parts = cursor.name()
        cursor.end()
    except SyntaxProblem:
        return None
    return parts
