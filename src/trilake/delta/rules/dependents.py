"""Rules that use a column: CHECK constraints, generated columns and invariants."""

from __future__ import annotations

import orjson
import sqlglot
from sqlglot import TokenType

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import StructField
from trilake.delta.protocol.schema_edit import Path, format_path, nested_fields
from trilake.delta.rules.constraints import INVARIANTS, PREFIX, in_backquotes
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import InvalidArgumentError


def dependents(metadata: Metadata, path: Path) -> list[str]:
    """Describe the rules that use a column, except its own.

    Any word that may be the column counts, since missing a rule would break later writes.
    """
    names = {path[0].lower(), path[-1].lower()}
    rules = [
        f"CHECK constraint {k[len(PREFIX) :]} ({v})"
        for k, v in sorted(metadata.configuration.items())
        if k.startswith(PREFIX) and names <= _words(in_backquotes(v, metadata.schema.names))
    ]
    for top in metadata.schema.fields:
        expression = top.metadata.get(GENERATION_EXPRESSION)
        if isinstance(expression, str) and names <= _words(expression) and top.name != path[0]:
            rules.append(f"generated column {top.name} ({expression})")
    ruled = (f.name for f in nested_fields(metadata.schema) if names <= _words(_invariant(f)))
    return [*rules, *(f"the invariant of column {name}" for name in ruled)]


def check_free_of_rules(
    metadata: Metadata, path: Path, what: str, *, conflict: str = "DEPENDENT_COLUMN_CHANGE", help: str = ""
) -> None:
    """Raise ``InvalidArgumentError`` if a rule uses the column.  ``conflict`` is the end of its condition's name."""
    rules = dependents(metadata, path)
    if rules:
        kind = "GENERATED_COLUMNS" if rules[0].startswith("generated") else "CONSTRAINT"
        raise InvalidArgumentError(
            f"cannot {what} column {format_path(path)}: it is used by {'; '.join(rules)}",
            help=help or "drop these first",
            column=format_path(path),
            condition=f"DELTA_{kind}_{conflict}",
        )


def _words(sql: str) -> set[str]:
    """All words of an expression that may be names, in lower case."""
    tokens = sqlglot.tokenize(sql, read="databricks")
    return {t.text.lower() for t in tokens if t.token_type not in (TokenType.STRING, TokenType.NUMBER)}


def _invariant(f: StructField) -> str:
    try:
        return str(orjson.loads(f.metadata[INVARIANTS])["expression"]["expression"])
    except (KeyError, TypeError, orjson.JSONDecodeError):
        return ""  # invalid, so it accepts no write either
