"""Versions of a dataset: the names of its manifests, and tags.

A dataset uses one of two naming schemes.  The format's first writers use ``_versions/12.manifest``; newer ones may name
files by ``2**64 - 1 - version`` in 20 digits, so that a listing begins with the newest.  The length of the name
distinguishes them.  ``_latest.manifest`` and ``latest_version_hint.json`` are hints for other readers: only a listing
decides which version is newest.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import orjson

from trilake.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    TableExistsError,
)
from trilake.lance.file.errors import DatasetExistsError, DatasetNotFoundError, DatasetVersionNotFoundError
from trilake.storage.base import Store
from trilake.storage.ownership import check_no_foreign_files
from trilake.table.location import check_not_below

VERSIONS, TAGS = "_versions", "_refs/tags"
#: A copy of the newest manifest for old readers; trilake never reads it.
LATEST = "_latest.manifest"

Scheme = Literal["v1", "v2"]
_LAST = (1 << 64) - 1
_NAME = re.compile(r"_versions/(d?)([0-9]{1,20})\.manifest\Z")
#: Numbers with this bit are of detached versions, which do not belong to the line of versions.
DETACHED = 1 << 63
#: Maximum attempts to read tags or branches while some are being deleted.
_ATTEMPTS = 5
_R = TypeVar("_R")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def manifest_key(version: int, scheme: Scheme = "v1") -> str:
    """The key of a version's manifest.

    >>> manifest_key(1), manifest_key(1, "v2")
    ('_versions/1.manifest', '_versions/18446744073709551614.manifest')
    """
    return f"{VERSIONS}/{version if scheme == 'v1' else f'{_LAST - version:020d}'}.manifest"


@dataclass(frozen=True)
class Listing:
    """The versions that have a manifest, ascending, their naming scheme, and the detached versions."""

    scheme: Scheme
    versions: tuple[int, ...]
    detached: tuple[int, ...] = ()

    @property
    def latest(self) -> int:
        """The newest version; 0 if there is none."""
        return self.versions[-1] if self.versions else 0

    def key(self, version: int) -> str:
        return f"{VERSIONS}/d{version}.manifest" if version & DETACHED else manifest_key(version, self.scheme)


def list_versions(store: Store) -> Listing:
    """List the versions of a dataset; clean-ups leave gaps.  Raises ``CorruptLogError`` for two naming schemes."""
    numbers: dict[Scheme, list[int]] = {"v1": [], "v2": []}
    detached: list[int] = []
    for meta in store.list(VERSIONS):
        match = _NAME.match(meta.key)
        number = 0 if match is None else int(match[2])
        if match is not None and match[1]:
            detached.append(number)
        elif match is not None and len(match[2]) == 20 and _LAST >> 1 < number <= _LAST:
            numbers["v2"].append(_LAST - number)
        elif 0 < number <= _LAST:
            numbers["v1"].append(number)
    if numbers["v1"] and numbers["v2"]:
        raise CorruptLogError(
            "the dataset's manifests use two naming schemes",
            help="a writer used the wrong naming scheme: keep the manifests of one scheme only",
            file=f"{store.uri}/{VERSIONS}",
        )
    scheme: Scheme = "v2" if numbers["v2"] else "v1"
    return Listing(scheme, tuple(sorted(set(numbers[scheme]))), tuple(detached))


#: Keys of data files and of side files of blobs; writers choose the names.
_DATA = re.compile(r"data/[^/]+\.lance|data/[^/]+/[01]{32}\.blob")


def check_new_location(store: Store, *, now_ms: int | None = None) -> None:
    """Check that a new dataset may be created at the root of the store.

    ``now_ms`` is the current time: data files that are too old cannot belong to a running write; ``None`` ignores their
    age.  Raises ``TableExistsError`` for a Delta table, and ``ForeignFilesError`` for files that do not belong to a
    dataset.
    """
    if next(iter(store.list("_delta_log")), None) is not None:
        raise TableExistsError(
            "there is already a Delta table at this location", help="write to another location", file=store.uri
        )
    check_not_below(store)
    check_no_foreign_files(store, names=_DATA, now_ms=now_ms)


def exists_already(store: Store, listing: Listing) -> DatasetExistsError:
    """Return the error for a dataset that may not be created."""
    help = 'pass mode="append" or mode="overwrite" to write into it'
    return DatasetExistsError("a Lance dataset already exists here", help=help, file=store.uri, version=listing.latest)


def exists(store: Store) -> bool:
    """Whether there is a Lance dataset at the root of the store."""
    return any((match := _NAME.match(meta.key)) and not match[1] for meta in store.list(VERSIONS))


def not_found(store: Store) -> DatasetNotFoundError:
    """The error for a location without a dataset."""
    return DatasetNotFoundError(
        "a Lance dataset was not found: there is no manifest in _versions", help="check the path", file=store.uri
    )


def choose_version(store: Store, listing: Listing, version: int | None) -> int:
    """Return ``version``, or the newest.  Raises ``TableNotFoundError`` or ``VersionNotFoundError``."""
    if not listing.versions:
        raise not_found(store)
    if version is None:
        return listing.latest
    if DETACHED <= version <= _LAST:
        return version
    if version not in listing.versions:
        raise DatasetVersionNotFoundError(
            f"the dataset has no version {version}",
            help=f"it has {_listed(listing.versions)}; older ones may have been cleaned up",
            file=store.uri,
            version=version,
        )
    return version


def _listed(versions: tuple[int, ...]) -> str:
    listed = versions if len(versions) <= 6 else (*versions[:3], "…", *versions[-2:])
    return "version" + ("s " if len(versions) > 1 else " ") + ", ".join(map(str, listed))


# --- tags ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tag:
    """A name for a version of a branch (``None``: the main line), with ISO timestamps and metadata from users."""

    name: str
    version: int
    manifest_size: int | None = None
    created: str | None = None
    updated: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: The branch of the version; ``None`` for the main line.
    branch: str | None = None


def _tag_key(name: str) -> str:
    if _TAG.match(name) is None or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidArgumentError(
            f"{name!r} is not a valid tag name",
            help="use letters, digits, '.', '-' and '_', beginning with a letter or digit",
        )
    return f"{TAGS}/{name}.json"


def _parse_tag(store: Store, key: str, data: bytes) -> Tag:
    name = key.rpartition("/")[2].removesuffix(".json")
    content = parse_reference(store, key, data, "tag")
    version = content.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptLogError(f"the tag refers to the invalid version {version!r}", file=f"{store.uri}/{key}")
    branch = content.get("branch")
    if branch is not None and not isinstance(branch, str):
        raise CorruptLogError(f"the tag refers to the invalid branch {branch!r}", file=f"{store.uri}/{key}")
    size = content.get("manifestSize")
    created, updated = (t if isinstance(t := content.get(k), str) else None for k in ("createdAt", "updatedAt"))
    return Tag(name, version, size if isinstance(size, int) else None, created, updated, string_map(content), branch)


def string_map(content: dict[str, Any]) -> dict[str, str]:
    """The ``metadata`` of a tag or branch; only strings are kept."""
    metadata = content.get("metadata")
    return {k: v for k, v in metadata.items() if isinstance(v, str)} if isinstance(metadata, dict) else {}


def parse_reference(store: Store, key: str, data: bytes, what: str) -> dict[str, Any]:
    """Parse the file of a tag or branch.  Raises ``CorruptLogError``."""
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise CorruptLogError(f"the {what} file is not JSON: {e}", file=f"{store.uri}/{key}") from e
    if not isinstance(content, dict):
        raise CorruptLogError(f"the {what} file is not a JSON object", file=f"{store.uri}/{key}")
    return content


def set_metadata(store: Store, key: str, metadata: Mapping[str, str]) -> None:
    """Replace the metadata in the file of a tag or branch."""
    content = orjson.loads(store.read(key).to_pybytes()) | {"metadata": dict(metadata)}
    store.put(key, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def read_references(store: Store, folder: str, parse: Callable[[Store, str, bytes], _R]) -> list[_R]:
    """Parse the files of tags or branches; list them again if one is deleted during the read."""
    for attempt in range(_ATTEMPTS):
        keys = [m.key for m in store.list(folder) if m.key.endswith(".json") and m.key.count("/") == 2]
        try:
            return [parse(store, key, data.to_pybytes()) for key, data in zip(keys, store.read_many(keys))]
        except ObjectNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def read_tags(store: Store) -> Mapping[str, Tag]:
    """Read all tags, by name.  Raises ``CorruptLogError`` for a tag without a version."""
    return {tag.name: tag for tag in read_references(store, TAGS, _parse_tag)}


def read_tag(store: Store, name: str) -> Tag:
    """Read a tag.  Raises ``VersionNotFoundError``."""
    key = _tag_key(name)
    try:
        return _parse_tag(store, key, store.read(key).to_pybytes())
    except ObjectNotFoundError as e:
        raise DatasetVersionNotFoundError(f"the tag {name!r} does not exist", file=store.uri) from e


def write_tag(
    store: Store, name: str, version: int, *, size: int, now_ns: int, update: bool = False, branch: str | None = None
) -> Tag:
    """Create a tag, or with ``update`` move an existing one, which keeps its metadata; ``size`` is the manifest's.

    Raises ``InvalidArgumentError`` if the tag to create exists, and ``VersionNotFoundError`` without one to move.
    """
    key = _tag_key(name)
    now = dt.datetime.fromtimestamp(now_ns // 10**9, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    timestamp = f"{now}.{now_ns % 10**9:09d}Z"
    content: dict[str, Any] = {"branch": None, "version": version, "createdAt": timestamp, "metadata": {}}
    if update:
        read_tag(store, name)  # raises if there is none
        content |= orjson.loads(store.read(key).to_pybytes())
    content |= {"branch": branch, "version": version, "updatedAt": timestamp, "manifestSize": size}
    data = orjson.dumps(content, option=orjson.OPT_INDENT_2)
    if update:
        store.put(key, data)
    else:
        try:
            store.put_if_absent(key, data)
        except ObjectExistsError:
            raise InvalidArgumentError(
                f"the tag {name!r} already exists", help="use tags.update instead", file=store.uri
            ) from None
    return _parse_tag(store, key, data)


def set_tag_metadata(store: Store, name: str, metadata: Mapping[str, str]) -> None:
    """Replace the metadata of a tag."""
    read_tag(store, name)  # raises if there is none
    set_metadata(store, _tag_key(name), metadata)


def delete_tag(store: Store, name: str) -> None:
    """Delete a tag; the version stays.  Raises ``VersionNotFoundError``."""
    read_tag(store, name)
    store.delete([_tag_key(name)])
