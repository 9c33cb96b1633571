"""Options of pylance: what they say of the format, and those that say what this library does anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trilake.common.arguments import flag
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.storage_version import StorageVersion

#: The property of a transaction that holds the message of its commit.
MESSAGE = "__lance_commit_message"
_UNSET = (None,)
_OFF = (None, False)
#: By option: the values that say what is done here, what the other ones ask for, and why they do not get it.
_OPTIONS: dict[str, tuple[tuple[object, ...], str, str]] = {
    "detached": (_OFF, "a version that is in no line of versions", "commits here are versions"),
    **dict.fromkeys(
        ["target_bases", "target_all_bases", "base_store_params"],
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
        (_UNSET, "an index of some fragments", "create_index_uncommitted builds it"),
    ),
    **dict.fromkeys(
        ["streaming_sample_rate", "streaming_coreset_rate", "streaming_refine_passes", "ivf_centroids_file"],
        (_UNSET, "another way to learn", "ivf_centroids takes what was learned elsewhere"),
    ),
    "defer_index_remap": (_OFF, "indices that are moved later", "a compaction moves them at once"),
    "compaction_mode": (
        (None, "reencode", "try_binary_copy"),
        "copies of files as they are",
        "row groups are cut again",
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
        "binary_copy_read_batch_bytes",
    )
)


def format_of(options: dict[str, Any]) -> dict[str, Any]:
    """What options say of the files and manifests of a dataset, for ``WriteOptions``; they are taken out.

    Raises ``InvalidArgumentError`` for values that cannot be, and ``WrongTypeError`` for those of other types.
    """
    version, legacy = options.pop("data_storage_version", None), options.pop("use_legacy_format", None)
    if legacy is not None and version is None:
        version = "legacy" if flag("use_legacy_format", legacy) else "stable"
    names, stable = (options.pop(n, None) for n in ("enable_v2_manifest_paths", "enable_stable_row_ids"))
    return {
        "storage_version": None if version is None else StorageVersion.parse(version),
        "v2_manifest_names": None if names is None else flag("enable_v2_manifest_paths", names),
        "stable_row_ids": stable is not None and flag("enable_stable_row_ids", stable),
    }


def properties_of(options: dict[str, Any]) -> dict[str, str]:
    """What options say of a commit, which its transaction keeps; they are taken out.  Raises ``WrongTypeError``."""
    properties = dict(options.pop("transaction_properties", None) or {})
    message = options.pop("commit_message", None)
    if message is not None:
        properties[MESSAGE] = message
    wrong = [value for pair in properties.items() for value in pair if not isinstance(value, str)]
    if wrong:
        raise WrongTypeError(f"the properties of a commit have {wrong[0]!r}", help="names and values are strings")
    return properties


def is_known(name: str) -> bool:
    """Whether an option is one of later releases."""
    return name in _OPTIONS or name in _NOTHING


def check_format(options: Mapping[str, Any], *, of: str) -> None:
    """Check options that a function has not taken for itself.

    Raises ``WrongTypeError`` for one that is not known, ``InvalidArgumentError`` for what is not done here.
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
