"""Rules that use a column: constraints, generated columns and invariants."""

from __future__ import annotations

import orjson
import sqlglot
from sqlglot import TokenType

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import StructField
from trilake.delta.protocol.schema_edit import Path, nested_fields, path_text
from trilake.delta.rules.constraints import INVARIANTS, PREFIX
from trilake.delta.rules.quoted_names import in_backquotes
from trilake.delta.scan.generated import GENERATION_EXPRESSION as GENERATED
from trilake.errors import InvalidArgumentError


def _words(text: str) -> set[str]:
    """Everything in an expression that may be a name, in lower case."""
    tokens = sqlglot.tokenize(text, read="databricks")
    return {t.text.lower() for t in tokens if t.token_type not in (TokenType.STRING, TokenType.NUMBER)}


def dependents(metadata: Metadata, path: Path) -> list[str]:
    """Describe the rules that use a column, except its own.

    A word that only looks like the column counts: missing a rule would break later writes.
    """
    names = {path[0].lower(), path[-1].lower()}
    rules = [
        f"CHECK constraint {k[len(PREFIX) :]} ({v})"
        for k, v in sorted(metadata.configuration.items())
        if k.startswith(PREFIX) and names <= _words(in_backquotes(v, metadata.schema.names))
    ]
    for top in metadata.schema.fields:
        expression = top.metadata.get(GENERATED)
        if isinstance(expression, str) and names <= _words(expression) and top.name != path[0]:
            rules.append(f"generated column {top.name} ({expression})")
    ruled = (f.name for f in nested_fields(metadata.schema) if names <= _words(_invariant(f)))
    return [*rules, *(f"the invariant of column {name}" for name in ruled)]


def _invariant(f: StructField) -> str:
    try:
        return str(orjson.loads(f.metadata[INVARIANTS])["expression"]["expression"])
    except (KeyError, TypeError, orjson.JSONDecodeError):
        return ""  # invalid, so no write accepts it either


def check_free_of_rules(metadata: Metadata, path: Path, what: str) -> None:
    """Raise ``InvalidArgumentError`` where a rule uses the column to change."""
    rules = dependents(metadata, path)
    if rules:
        raise InvalidArgumentError(
            f"cannot {what} column {path_text(path)}: {'; '.join(rules)} depends on it",
            help="drop what depends on the column first",
            column=path_text(path),
            condition=_condition(rules[0], what),
        )


def _condition(rule: str, what: str) -> str:
    change = "DATA_TYPE_MISMATCH" if "type" in what else "DEPENDENT_COLUMN_CHANGE"
    return f"DELTA_{'GENERATED_COLUMNS' if rule.startswith('generated') else 'CONSTRAINT'}_{change}"
