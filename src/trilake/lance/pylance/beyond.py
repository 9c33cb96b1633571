"""Names of pylance for what is not done here.

Such a name is an ``AttributeError`` that says why, and what to do instead.
"""

from __future__ import annotations

from trilake.errors import InvalidArgumentError


class NotInFormatError(InvalidArgumentError, AttributeError):
    """A name of pylance for what is not done here."""


_LOGS = "nothing is written ahead", "insert and merge_insert commit at once"
_PARTS = "segments are merged whole", "use create_index_uncommitted and merge_existing_index_segments"
_BASES = "new files lie below the place of the dataset", "write them there"
_CACHES = "each dataset has caches of its own", "index_cache_size says how many entries of indices are kept"
_ROW_IDS = "rows are compared by columns here", "_row_created_at_version says which rows are new"

#: By name: what is missing, and what to do.
BEYOND: dict[str, tuple[str, str]] = {
    "deep_clone": ("files are copied by rows here", "write_dataset copies a dataset"),
    **dict.fromkeys(["initialize_mem_wal", "mem_wal_index_details", "mem_wal_writer"], _LOGS),
    "merge_index_metadata": _PARTS,
    **dict.fromkeys(["add_bases", "base_paths"], _BASES),
    **dict.fromkeys(["delta", "remap_row_addrs"], _ROW_IDS),
    "session": _CACHES,
}


def not_in_format(kind: str, name: str) -> AttributeError:
    """The error for a name that there is not."""
    if name not in BEYOND:
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    reason, help = BEYOND[name]
    return NotInFormatError(f"there is no {name} here: {reason}", help=help)
