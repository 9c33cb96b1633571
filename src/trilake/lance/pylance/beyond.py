"""Names of later releases of pylance for what datasets of the first format do not have.

Such a name is an ``AttributeError`` that says why, and what to do instead.
"""

from __future__ import annotations

from trilake.errors import InvalidArgumentError


class NotInFormatError(InvalidArgumentError, AttributeError):
    """A name of later releases of pylance for what the format does not have."""


_CONFIGURATION = "the format keeps no configuration", "update_schema_metadata keeps texts beside the schema"
_BRANCHES = "the format has no branches", "tags name versions; write the rows of a version elsewhere to go on from it"
_BLOBS = "the format has no blobs", "columns of type large_binary keep bytes; take and scans read them"
_LOGS = "Lance 2.x writes ahead", "insert and merge_insert commit at once"
_PARTS = "the format has no indices in parts", "create_index and optimize.optimize_indices make whole ones"
_BASES = "all files of a dataset lie below its place", "copy them there"
_CACHES = "each dataset has caches of its own", "index_cache_size says how many entries of indices are kept"
_ROW_IDS = "the format does not keep row ids when rows move", "match rows by a column of your own"

#: By name: what is missing, and what to do.
BEYOND: dict[str, tuple[str, str]] = {
    **dict.fromkeys(["config", "update_config", "delete_config_keys", "metadata", "update_metadata"], _CONFIGURATION),
    **dict.fromkeys(["branches", "create_branch"], _BRANCHES),
    **dict.fromkeys(["shallow_clone", "deep_clone"], ("the format has no clones", "write_dataset copies a dataset")),
    **dict.fromkeys(["take_blobs", "read_blobs", "read_blob_ranges"], _BLOBS),
    **dict.fromkeys(["initialize_mem_wal", "mem_wal_index_details", "mem_wal_writer"], _LOGS),
    **dict.fromkeys(
        [
            "create_index_uncommitted",
            "merge_index_metadata",
            "merge_existing_index_segments",
            "commit_existing_index_segments",
        ],
        _PARTS,
    ),
    **dict.fromkeys(["add_bases", "base_paths"], _BASES),
    **dict.fromkeys(["delta", "remap_row_addrs"], _ROW_IDS),
    "session": _CACHES,
    "migrate_manifest_paths_v2": (
        "manifests keep their names, which readers of the first format need",
        "leave them as they are",
    ),
}


def not_in_format(kind: str, name: str) -> AttributeError:
    """The error for a name that there is not."""
    if name not in BEYOND:
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    reason, help = BEYOND[name]
    return NotInFormatError(f"there is no {name} for datasets of the first format of Lance: {reason}", help=help)
