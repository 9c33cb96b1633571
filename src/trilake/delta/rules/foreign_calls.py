"""Expressions stored in a table must not run arbitrary code.

The creator of a table decides its constraints, defaults and generated columns, and Spark evaluates those that DuckDB
cannot.  Spark has functions that call any Java method, and ``IDENTIFIER``, which turns a string into a function name.
"""

from __future__ import annotations

import re

from trilake.errors import ExpressionError

#: A call of one of them, however its name is quoted; also inside strings, as session settings decide what starts a
#: string.  Comments nest, so what follows one is not searched.
_CALL = re.compile(r"(?<!\w)(reflect|try_reflect|java_method|identifier)[`\"\s]*(?:\(|/\*|--)", re.IGNORECASE)


def refuse_foreign_calls(text: str, what: str) -> None:
    """Raise ``ExpressionError`` for an expression that calls Java methods; ``what`` names its owner.

    >>> refuse_foreign_calls("abs(a) > 0 and reflected", "constraint c")
    """
    match = _CALL.search(text)
    if match is not None:
        raise ExpressionError(
            f"the {what} calls {match[1].lower()}, which runs code of this machine; no rule of a table may",
            help="drop the rule before you write, and write only if you trust the table's author",
        )
