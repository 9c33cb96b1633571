"""Options of later releases: those are taken that say what this library does anyway, or nothing about this format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError

_UNSET = (None,)
_OFF = (None, False)
_FIRST = "this library writes the first format"

#: By option: the values that say what is done here, what the other ones ask for, and why they do not get it.
_OPTIONS: dict[str, tuple[tuple[object, ...], str, str]] = {
    "data_storage_version": ((None, "0.1", "legacy"), "files of Lance 2.x", _FIRST),
    "use_legacy_format": ((None, True), "files of Lance 2.x", _FIRST),
    "enable_v2_manifest_paths": (_OFF, "manifests with names that old readers do not know", _FIRST),
    "enable_stable_row_ids": (_OFF, "row ids that stay when rows move", _FIRST),
    "auto_cleanup_options": (_UNSET, "clean-ups by commits", "call cleanup_old_versions"),
    "commit_message": (_UNSET, "a text beside the commit", "the first format keeps none"),
    "transaction_properties": (_UNSET, "texts beside the commit", "the first format keeps none"),
    "detached": (_OFF, "a version that is not in the row of versions", "the first format has none"),
    **dict.fromkeys(
        ["initial_bases", "target_bases", "target_all_bases", "base_store_params"],
        (_OFF, "files outside of the dataset", "all files of a dataset lie below its place"),
    ),
    **dict.fromkeys(
        ["namespace_client", "table_id", "namespace_client_managed_versioning"],
        (_OFF, "a dataset by its name in a catalogue", "pass its path or URI"),
    ),
    "session": (_UNSET, "caches that several datasets share", "each dataset has caches of its own"),
    "read_params": (_UNSET, "caches of another kind", "each dataset has caches of its own"),
    "train": ((None, True), "an index without rows", "vectors are learned from"),
    **dict.fromkeys(
        ["fragment_ids", "index_uuid", "precomputed_partition_dataset", "precomputed_shuffle_buffers"],
        (_UNSET, "an index in parts", "the format has none: whole ones are made"),
    ),
    **dict.fromkeys(
        ["streaming_sample_rate", "streaming_coreset_rate", "streaming_refine_passes", "ivf_centroids_file"],
        (_UNSET, "another way to learn", "ivf_centroids takes what was learned elsewhere"),
    ),
    "defer_index_remap": (_OFF, "indices that are moved later", "a compaction moves them at once"),
    "compaction_mode": ((None, "reencode"), "copies of files as they are", "row groups are cut anew"),
    **dict.fromkeys(
        ["max_bytes_per_file", "max_source_fragments", "max_source_rows", "max_source_bytes", "excluded_fragment_ids"],
        (_UNSET, "a compaction of some files", "Compaction.plan gives the tasks, of which some can be run"),
    ),
    "versions": (_UNSET, "a clean-up of some versions", "say which by older_than or retain_versions"),
    "progress_callback": (_UNSET, "reports of how far an index is", "an index is made without"),
}
#: What changes nothing: sizes of what is read and kept, how quickly something is done, and what becomes of blobs.
_NOTHING = frozenset(
    (
        *("data_cache_bytes", "max_page_bytes", "metadata_cache_size_bytes", "index_cache_size_bytes"),
        *("external_blob_mode", "allow_external_blob_outside_bases", "blob_pack_file_size_threshold"),
        *("max_retries", "commit_timeout", "delete_rate_limit", "delete_concurrency"),
        *("batch_size", "binary_copy_read_batch_bytes"),
    )
)


def is_known(name: str) -> bool:
    """Whether an option is one of later releases."""
    return name in _OPTIONS or name in _NOTHING


def check_format(options: Mapping[str, Any], *, of: str) -> None:
    """Check options that a function has not taken for itself.

    Raises ``WrongTypeError`` for one that is not known, ``InvalidArgumentError`` for what the first format has not.
    """
    for name, value in options.items():
        if name in _NOTHING:
            continue
        if name not in _OPTIONS:
            raise WrongTypeError(f"{of} has no option {name!r}")
        done, others, reason = _OPTIONS[name]
        if not any(value is one or (isinstance(one, str) and value == one) for one in done):
            raise InvalidArgumentError(
                f"{name} is {value!r}, which asks for {others}",
                help=f"{reason}: leave it out, or pass {done[-1]!r}",
            )
