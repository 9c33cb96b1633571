"""User metadata of fields, such as comments: in Arrow, and in the log.

Protocol: *Schema Serialization Format*.  Users cannot set what the protocol, Spark or a file format keep there: ids,
generated and default values, invariants and length limits need calls that check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Prefixes, in lower case, of reserved keys.
_RESERVED = ("delta.", "__", "parquet", "arrow:", "spark.", "lance", "orc.", "iceberg.", "trilake.")
_DEFAULTS = frozenset(("current_default", "exists_default", "generationexpression"))


def is_users(name: str) -> bool:
    """Whether a key belongs to the user.

    >>> [n for n in ("comment", "unit", "delta.identity.start", "PARQUET:field_id", "CURRENT_DEFAULT") if is_users(n)]
    ['comment', 'unit']
    """
    folded = name.lower()
    return bool(folded) and not folded.startswith(_RESERVED) and folded not in _DEFAULTS


def notes_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The user metadata of an Arrow field; values that are not UTF-8 are left out."""
    notes = {}
    for name, value in (metadata or {}).items():
        try:
            key, text = name.decode(), value.decode()
        except UnicodeDecodeError:
            continue
        if is_users(key):
            notes[key] = text
    return notes


def arrow_notes(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    """The user metadata of a field in the log for its Arrow field, without numbers and objects, which Arrow lacks."""
    return {k: v for k, v in metadata.items() if isinstance(v, str) and is_users(k)} or None
