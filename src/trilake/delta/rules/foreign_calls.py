"""Expressions that a table stores may not run code of the machine that writes to it.

Whoever made a table decides its constraints, defaults and generated columns, and Spark evaluates those that the
embedded engine cannot.  Spark has functions that call any method of any Java class, and ``IDENTIFIER``, which makes the
name of a function of a string; no rule about rows needs them.
"""

from __future__ import annotations

import re

from trilake.errors import ExpressionError

#: A call of one of them, however its name is quoted; what stands behind a comment is not looked for, as comments nest.
#: In a string it is refused, too: whether a quotation mark begins a string depends on settings of the session.
_CALL = re.compile(r"(?<!\w)(reflect|try_reflect|java_method|identifier)[`\"\s]*(?:\(|/\*|--)", re.IGNORECASE)


def refuse_foreign_calls(text: str, what: str) -> None:
    """Raise ``ExpressionError`` for an expression of a table that calls Java methods; ``what`` says whose it is.

    >>> refuse_foreign_calls("abs(a) > 0 and reflected", "constraint c")
    """
    match = _CALL.search(text)
    if match is not None:
        raise ExpressionError(
            f"the {what} calls {match[1].lower()}, which runs code of this machine; no rule of a table may",
            help="drop the rule before you write, and write only if you trust the table's author",
        )
