"""``Tags`` and ``Branches``: named versions and named lines of versions."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.format_options import strings
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.lance.versions.branches import (
    Branch,
    branch_of,
    branch_store,
    delete_branch,
    read_branches,
    root_store,
    set_branch_metadata,
)
from trilake.lance.versions.holds import hold
from trilake.lance.versions.manifest import Manifest
from trilake.lance.versions.versions import (
    Tag,
    choose_version,
    delete_tag,
    list_versions,
    read_tag,
    read_tags,
    set_tag_metadata,
    write_tag,
)
from trilake.storage.base import Store

#: A version number, a tag, or a branch with a version number.
Reference = int | str | tuple[Any, ...] | None


@dataclass(frozen=True)
class Line:
    """The main line or a branch, with the store of its versions and that of the whole dataset."""

    root: Store
    branch: str | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> Line:
        branch = snapshot.manifest.branch
        return cls(root_store(snapshot.store, branch), branch)

    @property
    def store(self) -> Store:
        return branch_store(self.root, self.branch)

    def resolve(self, reference: Reference) -> tuple[Line, int | None]:
        """Resolve a reference to a line and a version number; ``None`` means the newest version.

        Raises ``VersionNotFoundError`` for an unknown tag or branch, and ``WrongTypeError`` for other types.
        """
        if isinstance(reference, str):
            tag = read_tag(self.root, reference)
            return Line(self.root, tag.branch), tag.version
        if not isinstance(reference, tuple):
            if reference is not None and (isinstance(reference, bool) or not isinstance(reference, int)):
                raise WrongTypeError(f"a version must be a number, a tag, or (branch, number), got {reference!r}")
            return self, reference
        if len(reference) != 2 or not isinstance(reference[0], str | None):
            raise InvalidArgumentError(f"invalid version reference {reference!r}", help="pass (branch, number)")
        branch, version = reference
        if isinstance(version, str):
            return self.resolve(version)
        if branch in (None, "main"):
            return Line(self.root), version
        branch_of(self.root, branch)
        return Line(self.root, branch), version

    def load(self, version: int | None) -> tuple[Store, Manifest]:
        """Load the store and the manifest of a version, by default the newest.  Raises ``VersionNotFoundError``."""
        store = self.store
        return store, transaction.load(store, version)


class Tags:
    """The tags of a dataset; each call reads them from the store."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._line, self._runtime, self._current_version = Line.of(snapshot), snapshot.runtime, snapshot.version

    def list(self) -> dict[str, dict[str, Any]]:
        """Return all tags by name: version, branch, timestamps, metadata and ``manifest_size``."""
        return {name: _described(tag) for name, tag in read_tags(self._line.root).items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, dict[str, Any]]]:
        """Return all tags by version, newest first; ``order="asc"`` for oldest first."""
        return _ordered(self.list(), "version", order)

    def get_version(self, tag: str) -> int:
        """Return the version of a tag.  Raises ``VersionNotFoundError``."""
        return read_tag(self._line.root, tag).version

    def create(self, tag: str, reference: Reference = None, *, version: int | None = None) -> None:
        """Create a tag for a version, by default that of the dataset object.

        ``reference`` is a number, another tag, or a pair of branch and number; ``version`` is an alias.  Raises
        ``InvalidArgumentError`` if the tag exists, ``VersionNotFoundError``, and ``ConflictError`` if a clean-up is
        deleting the version.
        """
        self._write(tag, *self._version(reference, version), update=False)

    def update(self, tag: str, reference: Reference = None, *, version: int | None = None) -> None:
        """Move a tag to another version, by default that of the dataset object; see :meth:`create`.

        The tag keeps its metadata.
        """
        self._write(tag, *self._version(reference, version), update=True)

    def replace_metadata(self, tag: str, metadata: Mapping[Any, Any]) -> None:
        """Replace the metadata of a tag.  Raises ``VersionNotFoundError``."""
        set_tag_metadata(self._line.root, tag, strings("the metadata of a tag", metadata))

    def delete(self, tag: str) -> None:
        """Delete a tag, but not its version.  Raises ``VersionNotFoundError``."""
        delete_tag(self._line.root, tag)

    def _version(self, reference: Reference, version: int | None) -> tuple[Line, int]:
        if reference is not None and version is not None:
            raise InvalidArgumentError("reference and version cannot be used together", help="pass only one of them")
        line, named = self._line.resolve(version if reference is None else reference)
        if named is None:
            named = self._current_version if reference is None else list_versions(line.store).latest
        return line, named

    def _write(self, tag: str, line: Line, version: int, *, update: bool) -> None:
        store = line.store
        number = choose_version(store, list_versions(store), version)
        with hold(store, number, self._runtime):
            listing = list_versions(store)
            choose_version(store, listing, number)  # raises if a clean-up has just removed the version
            size, now = store.head(listing.key(number)).size, self._runtime.clock_ns()
            write_tag(line.root, tag, number, size=size, now_ns=now, update=update, branch=line.branch)


class Branches:
    """The branches of a dataset; each call reads them from the store."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._root = Line.of(snapshot).root

    def list(self) -> dict[str, dict[str, Any]]:
        """Return all branches by name, with their parent version and creation time."""
        return {name: _of_branch(branch) for name, branch in read_branches(self._root).items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, dict[str, Any]]]:
        """Return all branches by creation time, newest first; ``order="asc"`` for oldest first."""
        return _ordered(self.list(), "create_at", order)

    def delete(self, branch: str) -> None:
        """Delete a branch with its versions.  Raises ``VersionNotFoundError``."""
        delete_branch(self._root, branch)

    def replace_metadata(self, branch: str, metadata: Mapping[Any, Any]) -> None:
        """Replace the metadata of a branch.  Raises ``VersionNotFoundError``."""
        set_branch_metadata(self._root, branch, strings("the metadata of a branch", metadata))


def _ordered(items: dict[str, dict[str, Any]], field: str, order: str | None) -> list[tuple[str, dict[str, Any]]]:
    if order not in (None, "asc", "desc"):
        raise InvalidArgumentError(f"order must be asc or desc, got {order!r}")
    sign = 1 if order == "asc" else -1
    return sorted(items.items(), key=lambda item: (sign * (item[1][field] or 0), item[0]))


def _of_branch(branch: Branch) -> dict[str, Any]:
    return {
        "parent_branch": branch.parent_branch,
        "branch_identifier": list(branch.identifier),
        "parent_version": branch.parent_version,
        "create_at": branch.created,
        "manifest_size": branch.manifest_size,
        "metadata": dict(branch.metadata),
    }


def _described(tag: Tag) -> dict[str, Any]:
    return {
        "branch": tag.branch,
        "version": tag.version,
        "manifest_size": tag.manifest_size,
        "created_at": _time(tag.created),
        "updated_at": _time(tag.updated),
        "metadata": dict(tag.metadata),
    }


def _time(timestamp: str | None) -> dt.datetime | None:
    """Parse an ISO timestamp, with a precision of microseconds."""
    try:
        return None if timestamp is None else dt.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", timestamp))
    except ValueError:
        return None
