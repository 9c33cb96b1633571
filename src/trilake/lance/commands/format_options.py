"""Options of newer pylance releases: file and manifest formats, and options with a single supported value."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from trilake.common.arguments import flag
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import OptionError, WrongTypeError
from trilake.lance.file.storage_version import StorageVersion

#: The transaction property with the commit message.
MESSAGE = "__lance_commit_message"
_UNSET = (None,)
_OFF = (None, False)
#: Supported values of each option, the feature that other values request, and an alternative.
_OPTIONS: dict[str, tuple[tuple[object, ...], str, str]] = {
    "base_store_params": (_UNSET, "other options for a base path", "storage_options apply to all base paths"),
    **dict.fromkeys(
        ["namespace_client", "table_id", "namespace_client_managed_versioning"],
        (_OFF, "a dataset by its name in a catalog", "lance.dataset and lance.write_dataset support catalogs"),
    ),
    "session": (_UNSET, "caches shared by several datasets", "each dataset has its own caches"),
    **dict.fromkeys(
        ["fragment_ids", "index_uuid", "precomputed_partition_dataset", "precomputed_shuffle_buffers"],
        (_UNSET, "an index of some fragments", "create_index_uncommitted indexes some fragments"),
    ),
    **dict.fromkeys(
        ["streaming_sample_rate", "streaming_coreset_rate", "streaming_refine_passes", "ivf_centroids_file"],
        (_UNSET, "another training method", "ivf_centroids takes centroids trained elsewhere"),
    ),
    "train": ((None, True), "an index without rows", "create_index and create_scalar_index can leave out the rows"),
    "rabitq_model": (_UNSET, "an IVF_RQ index", "IVF_PQ indices are supported"),
    "document_granularity": (_UNSET, "full-text search", "filters such as contains(text, 'word') scan all rows"),
    "data_storage_version": (_UNSET, "files of another format", "a dataset keeps its format"),
    "defer_index_remap": (_OFF, "indices to be remapped later", "a compaction remaps them at once"),
    "compaction_mode": (
        (None, "reencode", "try_binary_copy"),
        "binary copies of files",
        "a compaction encodes the rows again",
    ),
    "versions": (_UNSET, "a cleanup of selected versions", "select them with older_than or retain_versions"),
    "progress_callback": (_UNSET, "progress reports of an index", "indices are built without progress reports"),
}
#: Options without effect: buffer sizes, time limits, and whether to check what is read, which trilake always does.
_NOTHING = frozenset(
    (
        *("data_cache_bytes", "max_page_bytes", "metadata_cache_size_bytes", "index_cache_size_bytes"),
        *("blob_pack_file_size_threshold", "read_params"),
        *("max_retries", "commit_timeout", "delete_rate_limit", "delete_concurrency"),
        *("binary_copy_read_batch_bytes", "format_version"),
    )
)


def format_of(options: dict[str, Any]) -> dict[str, Any]:
    """Remove and return the options of files and manifests, as arguments of ``WriteOptions``.

    Raises ``InvalidArgumentError`` for invalid values and ``WrongTypeError`` for invalid types.
    """
    version, legacy = options.pop("data_storage_version", None), options.pop("use_legacy_format", None)
    if legacy is not None:
        warnings.warn("use data_storage_version instead of use_legacy_format", DeprecationWarning, stacklevel=4)
    if legacy is not None and version is None:
        version = "legacy" if flag("use_legacy_format", legacy) else "stable"
    bases = options.pop("target_bases", None) or ()
    if not isinstance(bases, list | tuple) or not all(isinstance(one, str) for one in bases):
        raise WrongTypeError(f"target_bases must be a list of strings, got {bases!r}")
    others = "enable_v2_manifest_paths", "enable_stable_row_ids", "target_all_bases"
    names, stable, every = (options.pop(name, None) for name in others)
    return {
        "storage_version": None if version is None else StorageVersion.parse(version),
        "v2_manifest_names": None if names is None else flag("enable_v2_manifest_paths", names),
        "stable_row_ids": stable is not None and flag("enable_stable_row_ids", stable),
        "external_blobs": _external_blobs(options),
        "target_bases": tuple(bases),
        "target_all_bases": None if every is None else flag("target_all_bases", every),
    }


def _external_blobs(options: dict[str, Any]) -> str:
    mode = options.pop("external_blob_mode", None) or "reference"
    everywhere = flag("allow_external_blob_outside_bases", options.pop("allow_external_blob_outside_bases", False))
    if mode not in ("reference", "ingest"):
        raise InvalidArgumentError(f'external_blob_mode must be "reference" or "ingest", got {mode!r}')
    if mode == "ingest" and everywhere:
        raise OptionError(
            'allow_external_blob_outside_bases only applies when external_blob_mode="reference"',
            help='leave it out: "ingest" copies blobs',
        )
    return "all" if everywhere else "ingest" if mode == "ingest" else "bases"


def properties_of(options: dict[str, Any]) -> dict[str, str]:
    """Remove and return the options stored as properties of the transaction.  Raises ``WrongTypeError``."""
    properties = dict(options.pop("transaction_properties", None) or {})
    message = options.pop("commit_message", None)
    if message is not None:
        properties[MESSAGE] = message
    return strings("commit properties", properties)


def strings(what: str, entries: Mapping[Any, Any]) -> dict[str, str]:
    """Check a map.  Raises ``WrongTypeError`` unless all keys and values are strings."""
    wrong = [value for pair in dict(entries).items() for value in pair if not isinstance(value, str)]
    if wrong:
        raise WrongTypeError(f"{what} must be strings, got {wrong[0]!r}")
    return dict(entries)


def is_known(name: str) -> bool:
    """Whether the name is an option of newer pylance releases."""
    return name in _OPTIONS or name in _NOTHING


def check_format(options: Mapping[str, Any], *, of: str) -> None:
    """Check the remaining options of a function.

    Raises ``WrongTypeError`` for an unknown option, and ``InvalidArgumentError`` for an unsupported value.
    """
    for name, value in options.items():
        if name in _NOTHING:
            continue
        if name not in _OPTIONS:
            raise WrongTypeError(f"{of} has no option {name!r}")
        done, others, reason = _OPTIONS[name]
        if not any(value is one or (isinstance(one, str) and value == one) for one in done):
            raise InvalidArgumentError(
                f"{name}={value!r} is not supported: it requests {others}",
                help=f"leave it out, or pass {done[-1]!r}; {reason}",
            )
