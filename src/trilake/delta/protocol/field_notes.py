"""What users note on a field, such as a comment: the metadata of an Arrow field, and of a field in the log.

Protocol: *Schema Serialization Format*.  What the protocol, Spark or a file format keeps there is not for users to
say: ids, generated and default values, invariants and limits of strings come by calls that check them, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: How the names begin, in small letters, under which others keep what they need.
_RESERVED = ("delta.", "__", "parquet", "arrow:", "spark.", "lance", "orc.", "iceberg.", "trilake.")
_DEFAULTS = frozenset(("current_default", "exists_default", "generationexpression"))


def is_users(name: str) -> bool:
    """Whether a note of this name is the user's own affair.

    >>> [n for n in ("comment", "unit", "delta.identity.start", "PARQUET:field_id", "CURRENT_DEFAULT") if is_users(n)]
    ['comment', 'unit']
    """
    folded = name.lower()
    return bool(folded) and not folded.startswith(_RESERVED) and folded not in _DEFAULTS


def notes_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The user's notes on an Arrow field; what is not a string is left out."""
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
    """The same of a field in the log, for its Arrow field; numbers and objects are left out, which Arrow has not."""
    return {k: v for k, v in metadata.items() if isinstance(v, str) and is_users(k)} or None
