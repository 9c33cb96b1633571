"""``AND`` and ``OR`` of many conditions in DuckDB's SQL, each evaluated only where earlier ones do not decide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from itertools import groupby

from sqlglot import exp

#: A condition, and what to evaluate where it does not decide.
_FORMS = {
    "AND": "(CASE WHEN NOT {0} THEN FALSE ELSE ({0} AND {1}) END)",
    "OR": "(CASE WHEN {0} THEN TRUE ELSE ({0} OR {1}) END)",
}
#: How many conditions are combined at a time: each is repeated once per level, DuckDB's parser has a maximum depth, and
#: its planner takes quadratic time by depth.
_CHAIN = 32
#: Expressions that have a value for every row, without casts.
_CANNOT_FAIL = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Is, exp.In, exp.Between, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Null, exp.Column, exp.Identifier, exp.Literal, exp.Boolean,
)  # fmt: skip

_DECIMAL = r"DECIMAL\(\d+,\d+\)"
#: A numeric literal, and one as a wider type.
_NUMBER = rf"(?:\(-?\d+\)::\w+|CAST\('-?[\d.]+' AS {_DECIMAL}\))"
_WIDENED = re.compile(rf"CAST\({_NUMBER} AS (?:BIGINT|DOUBLE|{_DECIMAL})\)|{_NUMBER}")


def connected(word: str, conditions: Sequence[tuple[exp.Expression, str]]) -> str:
    """Combine conditions into one.

    Parameters
    ----------
    word: ``AND`` or ``OR``.
    conditions: each as it was parsed, and as DuckDB's SQL.

    >>> import sqlglot
    >>> parts = [(sqlglot.parse_one(t, dialect="spark"), f"({t})") for t in ("a > 1", "a < 9", "1 / a > 2", "b = 1")]
    >>> connected("AND", parts[:2])
    '((a > 1) AND (a < 9))'
    >>> connected("OR", parts[2:])
    '(CASE WHEN (1 / a > 2) THEN TRUE ELSE ((1 / a > 2) OR (b = 1)) END)'
    """
    texts: list[str] = []
    for certain, run in groupby(conditions, key=lambda c: _cannot_fail(*c)):
        together = [text for _, text in run]
        texts += [f"({f' {word} '.join(together)})"] if certain and len(together) > 1 else together
    while len(texts) > 1:
        chains = [texts[i : i + _CHAIN] for i in range(0, len(texts), _CHAIN)]
        texts = [reduce(lambda rest, part: _FORMS[word].format(part, rest), reversed(chain)) for chain in chains]
    return texts[0]


def _cannot_fail(condition: exp.Expression, text: str) -> bool:
    return "CAST" not in _WIDENED.sub("", text) and all(isinstance(node, _CANNOT_FAIL) for node in condition.walk())
