"""Random queries over the two tables of :mod:`tests.sql.duckdb.queries.cases`.

Each joins, filters, groups, orders windows, asks queries in expressions and puts results together; what a query may not
do in Spark, such as a position in GROUP BY that is not there, comes by chance and is refused by both sides.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Columns by the kind of their values: numbers, texts, and what nothing more is made of.
_T = {"id": "number", "i": "number", "dec": "number", "s": "text", "f": "other", "d": "other", "b": "other"}
_U = {"id": "number", "i": "number", "w": "number", "s": "text"}
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN")
_TEXTS = ("'apple'", "'a'", "''", "'B%'", "'%a%'")


@dataclass(frozen=True)
class _Column:
    text: str
    kind: str


_Columns = Sequence[_Column]


class RandomQueries:
    """Makes queries; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def query(self, depth: int = 2) -> str:
        """One query, with ``{t}`` and ``{u}`` for the tables."""
        return self._select(depth)[0]

    # --- expressions -------------------------------------------------------------------------------------------------

    def _one_of(self, *choices: str) -> str:
        return self.random.choice(choices)

    def _column(self, columns: _Columns, kind: str, otherwise: str) -> str:
        known = [c.text for c in columns if c.kind == kind]
        return self.random.choice(known) if known else otherwise

    def _number(self, columns: _Columns, depth: int = 2) -> str:
        if depth <= 0 or self.random.random() < 0.35:
            return self._column(columns, "number", str(self.random.randint(0, 9)))
        x, y = (self._number(columns, depth - 1) for _ in range(2))
        return self._one_of(
            str(self.random.randint(-1, 100)),
            f"({x} {self._one_of('+', '-', '*')} {y})",
            f"coalesce({x}, {self.random.randint(0, 5)})",
            f"CASE WHEN {self._condition(columns, depth - 1)} THEN {x} ELSE {y} END",
            f"abs({x})",
            f"({x} % {self.random.choice((2, 3, 5))})",
            f"length({self._text(columns, depth - 1)})",
            f"greatest({x}, {y})",
        )

    def _text(self, columns: _Columns, depth: int = 2) -> str:
        if depth <= 0 or self.random.random() < 0.5:
            return self._column(columns, "text", "'q'")
        x = self._text(columns, depth - 1)
        return self._one_of(
            *_TEXTS[:3],
            f"upper({x})",
            f"concat({x}, '-', CAST({self._number(columns, 0)} AS STRING))",
            f"substring({x}, {self.random.randint(-2, 3)}, {self.random.randint(0, 4)})",
            f"coalesce({x}, 'none')",
        )

    def _any(self, columns: _Columns, depth: int) -> str:
        return self.random.choice((self._number, self._text))(columns, depth)

    def _condition(self, columns: _Columns, depth: int = 2) -> str:
        number = self._number(columns, 0)
        if depth <= 0:
            return f"{number} > {self.random.randint(-3, 9)}"
        less = self._condition(columns, depth - 1)
        choices = [
            f"{number} {self._one_of('<', '>', '=', '<=', '<>', '<=>')} {self._number(columns, depth - 1)}",
            f"{self._text(columns, 0)} {self._one_of('=', '<', 'LIKE', '>=')} {self._one_of(*_TEXTS)}",
            f"({less} {self._one_of('AND', 'OR')} {self._condition(columns, depth - 1)})",
            f"NOT ({less})",
            f"{self._any(columns, 0)} IS {self._one_of('', 'NOT ')}NULL",
            f"{number} {self._one_of('', 'NOT ')}IN (2, -4, {self._one_of('7', 'NULL')})",
            f"{number} BETWEEN -2 AND {self.random.randint(3, 20)}",
        ]
        if depth > 1:
            name, inner = self._named(_T)
            key = self._column(inner, "number", "1")
            condition = self._condition(inner, 0)
            choices.append(
                f"{self._one_of('', 'NOT ')}EXISTS (SELECT 1 FROM {{t}} {name} WHERE {key} = {number} AND {condition})"
            )
            choices.append(f"{number} {self._one_of('', 'NOT ')}IN (SELECT {key} FROM {{t}} {name} WHERE {condition})")
        return self._one_of(*choices)

    def _aggregate(self, columns: _Columns) -> str:
        number = self._number(columns, 1)
        only = f" FILTER (WHERE {self._condition(columns, 1)})" if self.random.random() < 0.2 else ""
        return self._one_of(
            *(f"{name}({number}){only}" for name in ("sum", "count", "min", "max", "avg")),
            f"count(DISTINCT {number})",
            f"{self._one_of('min', 'max')}({self._text(columns, 1)})",
            f"max(named_struct('x', {number}, 'y', {self._text(columns, 0)})).y",
            f"count_if({self._condition(columns, 1)})",
        )

    def _window(self, columns: _Columns) -> str:
        parts = f"PARTITION BY {self._any(columns, 1)}" if self.random.random() < 0.6 else ""
        order = f"{parts} ORDER BY {self._number(columns, 1)}".strip()
        return self._one_of(
            f"rank() OVER ({order})",
            f"dense_rank() OVER ({order} DESC)",
            f"sum({self._number(columns, 1)}) OVER ({order})",
            f"max({self._number(columns, 1)}) OVER ({order} / 2)",
            f"count(*) OVER ({parts})",
            f"min({self._text(columns, 1)}) OVER ({parts})",
        )

    # --- relations ---------------------------------------------------------------------------------------------------

    def _named(self, columns: dict[str, str]) -> tuple[str, _Columns]:
        self.names += 1
        name = f"r{self.names}"
        return name, [_Column(f"{name}.{column}", kind) for column, kind in columns.items()]

    def _relation(self, depth: int) -> tuple[str, _Columns]:
        chance = self.random.random()
        if depth > 0 and chance < 0.25:
            text, shown = self._select(depth - 1)
            name, columns = self._named(shown)
            return f"({text}) {name}", columns
        name, columns = self._named(_T if chance < 0.8 else _U)
        return f"{{{'t' if chance < 0.8 else 'u'}}} {name}", columns

    def _from(self, depth: int) -> tuple[str, _Columns]:
        text, columns = self._relation(depth)
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            other, more = self._relation(depth - 1)
            join = self._one_of(*_JOINS)
            both = [*columns, *more]
            keys = [self._column(side, "number", "") for side in (columns, more)]
            if join == "CROSS JOIN" or "" in keys:
                text, columns = f"{text} CROSS JOIN {other}", both
                continue
            also = f" AND {self._condition(both, 1)}" if self.random.random() < 0.3 and join != "FULL JOIN" else ""
            text = f"{text} {join} {other} ON {keys[0]} = {keys[1]}{also}"
            columns = columns if "SEMI" in join or "ANTI" in join else both
        return text, columns

    def _select(self, depth: int) -> tuple[str, dict[str, str]]:
        """A query, and the columns that it shows."""
        source, columns = self._from(depth)
        if self.random.random() < 0.5:
            source += f" WHERE {self._condition(columns)}"
        if self.random.random() < 0.45:
            return self._grouped(source, columns)
        shown = {f"c{i}": self._one_of("number", "text", "other") for i in range(self.random.randint(1, 3))}
        made = {"number": self._number, "text": self._text, "other": self._window}
        items = ", ".join(f"{made[kind](columns)} AS {name}" for name, kind in shown.items())
        text = f"SELECT {self._one_of('', '', 'DISTINCT ')}{items} FROM {source}"
        if "other" not in shown.values() and self.random.random() < 0.2:
            other, more = self._from(0)
            same = ", ".join(made[kind](more) for kind in shown.values())
            text += f" {self._one_of('UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT')} SELECT {same} FROM {other}"
        return text, shown

    def _grouped(self, source: str, columns: _Columns) -> tuple[str, dict[str, str]]:
        keys = [self._any(columns, 1) for _ in range(self.random.randint(0, 2))]
        items = [*keys, *(self._aggregate(columns) for _ in range(self.random.randint(1, 2)))]
        shown = ", ".join(f"{item} AS g{i}" for i, item in enumerate(items))
        text = f"SELECT {shown} FROM {source}"
        if keys:
            listed = ", ".join(keys)
            text += f" GROUP BY {self._one_of(listed, listed, listed, f'ROLLUP ({listed})', f'CUBE ({listed})')}"
            if self.random.random() < 0.2:
                text += f" HAVING {self._aggregate(columns)} IS NOT NULL"
        return text, {f"g{i}": "other" for i in range(len(items))}
