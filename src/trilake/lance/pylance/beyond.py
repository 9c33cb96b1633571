"""pylance names that trilake does not support: an ``AttributeError`` says why, and what to use instead."""

from __future__ import annotations

from trilake.errors import InvalidArgumentError


class NotInFormatError(InvalidArgumentError, AttributeError):
    """A pylance name that trilake does not support."""


_LOGS = "trilake has no write-ahead log", "use insert or merge_insert, which commit at once"
_PARTS = "segments are merged as a whole", "use create_index_uncommitted and merge_existing_index_segments"
_CACHES = "each dataset has its own caches", "set index_cache_size, the number of cached index entries"
_ROW_IDS = "trilake compares rows by columns", "_row_created_at_version says which rows are new"
#: Reason and alternative for each name.
BEYOND: dict[str, tuple[str, str]] = {
    "deep_clone": ("trilake copies rows, not files", "write_dataset(dataset, uri) copies the rows"),
    **dict.fromkeys(["initialize_mem_wal", "mem_wal_index_details", "mem_wal_writer"], _LOGS),
    "merge_index_metadata": _PARTS,
    **dict.fromkeys(["delta", "remap_row_addrs"], _ROW_IDS),
    "session": _CACHES,
    **dict.fromkeys(["DataOverlay", "DataOverlayFile"], ("trilake has no data overlays", "use update or merge_insert")),
}


def not_in_format(kind: str, name: str) -> AttributeError:
    """Return the error for an attribute that does not exist."""
    if name not in BEYOND:
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    reason, help = BEYOND[name]
    return NotInFormatError(f"trilake does not support {name}: {reason}", help=help)
