"""Conditions in the words of other implementations of the format, in those of Spark.

Everywhere else conditions are Spark's SQL.  Users of the format also know a few forms that Spark does not have; they
are replaced here, outside of quotes, and everything else stays as it is.
"""

from __future__ import annotations

import re

from trilake.lance.scan.sql_functions import in_sparks_words

#: Quoted texts and names, which stay; behind them what is replaced.
_FORMS = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    |\bregexp_match\s*\((?P<match>)
    |\b(?P<stamp>timestamp|datetime)\s*\(\s*\d+\s*\)(?=\s*(?:'|\)))
    |\b(?P<datetime>datetime)\b(?=\s*(?:'|\)))
    |\bdecimal\s*(?P<digits>\(\s*\d+\s*,\s*\d+\s*\))\s*(?P<decimal>'[^']*')""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def as_spark(text: str) -> str:
    """The condition with Spark's names of functions and types.

    >>> as_spark("regexp_match(s, 'datetime(6)') AND d = DECIMAL(5,3) '1.000' AND t < TIMESTAMP(6) '2021-01-01'")
    "regexp_like(s, 'datetime(6)') AND d = CAST('1.000' AS DECIMAL(5,3)) AND t < TIMESTAMP '2021-01-01'"
    """
    return in_sparks_words(_FORMS.sub(_replaced, text))


def _replaced(match: re.Match[str]) -> str:
    if match["quoted"] is not None:
        return match[0]
    if match["match"] is not None:
        return "regexp_like("
    if match["decimal"] is not None:
        return f"CAST({match['decimal']} AS DECIMAL{match['digits']})"
    return "TIMESTAMP"
