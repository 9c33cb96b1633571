"""``Tags`` and ``Branches``: the names of a dataset's versions, and of lines of them."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trilake.errors import InvalidArgumentError
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

#: A version by its number, by the name of a tag, or by a branch and its number there.
Reference = int | str | tuple[Any, ...] | None


@dataclass(frozen=True)
class Line:
    """The versions of the main line or of a branch: the store that has them, and that of the whole dataset."""

    root: Store
    branch: str | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> Line:
        """The line of a version that is open."""
        branch = snapshot.manifest.branch
        return cls(root_store(snapshot.store, branch), branch)

    @property
    def store(self) -> Store:
        """The store of its versions."""
        return branch_store(self.root, self.branch)

    def resolve(self, reference: Reference) -> tuple[Line, int | None]:
        """The line and the number of a version; ``None`` for the newest.

        Raises ``VersionNotFoundError`` for a tag or branch that there is not, ``WrongTypeError`` for anything else.
        """
        if isinstance(reference, str):
            tag = read_tag(self.root, reference)
            return Line(self.root, tag.branch), tag.version
        if not isinstance(reference, tuple):
            if reference is not None and (isinstance(reference, bool) or not isinstance(reference, int)):
                raise WrongTypeError(
                    f"a version is {reference!r}", help="pass its number, the name of a tag, or (branch, number)"
                )
            return self, reference
        if len(reference) != 2 or not isinstance(reference[0], str | None):
            raise InvalidArgumentError(f"{reference!r} does not name a version", help="pass (branch, number)")
        branch, version = reference
        if isinstance(version, str):
            return self.resolve(version)
        if branch in (None, "main"):
            return Line(self.root), version
        branch_of(self.root, branch)
        return Line(self.root, branch), version

    def load(self, version: int | None) -> tuple[Store, Manifest]:
        """The store and the manifest of a version, or of the newest.  Raises ``VersionNotFoundError``."""
        store = self.store
        return store, transaction.load(store, version)


class Tags:
    """The tags of a dataset, as they are in its store now."""

    def __init__(self, shown: Snapshot) -> None:
        self._line, self._runtime, self._shown = Line.of(shown), shown.runtime, shown.version

    def list(self) -> dict[str, dict[str, Any]]:
        """All tags by name, with the version and branch of each, its times, metadata and ``manifest_size``."""
        return {name: _described(tag) for name, tag in read_tags(self._line.root).items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, dict[str, Any]]]:
        """All tags by their versions, the newest first, or with ``order="asc"`` the oldest."""
        if order not in (None, "asc", "desc"):
            raise InvalidArgumentError(f"order is {order!r}", help="it is asc or desc")
        sign = 1 if order == "asc" else -1
        return sorted(self.list().items(), key=lambda item: (sign * item[1]["version"], item[0]))

    def get_version(self, tag: str) -> int:
        """The version that a tag names.  Raises ``VersionNotFoundError``."""
        return read_tag(self._line.root, tag).version

    def create(self, tag: str, reference: Reference = None, *, version: int | None = None) -> None:
        """Name a version, by default the one that the dataset shows.

        ``reference`` is its number, the name of another tag, or a pair of a branch and a number; ``version`` is another
        name of it.  Raises ``InvalidArgumentError`` where the tag is there, ``VersionNotFoundError``, and
        ``ConflictError`` where a clean-up is about to remove the version.
        """
        self._write(tag, *self._version(reference, version), update=False)

    def update(self, tag: str, reference: Reference = None, *, version: int | None = None) -> None:
        """Let a tag name another version, by default the one that is shown; see :meth:`create`.

        Its metadata stays.
        """
        self._write(tag, *self._version(reference, version), update=True)

    def replace_metadata(self, tag: str, metadata: Mapping[Any, Any]) -> None:
        """Put other metadata in the place of a tag's.  Raises ``VersionNotFoundError``."""
        set_tag_metadata(self._line.root, tag, strings(metadata, "a tag"))

    def delete(self, tag: str) -> None:
        """Remove a tag; the version stays.  Raises ``VersionNotFoundError``."""
        delete_tag(self._line.root, tag)

    def _version(self, reference: Reference, version: int | None) -> tuple[Line, int]:
        if reference is not None and version is not None:
            raise InvalidArgumentError("reference and version both say which version", help="leave one of them out")
        line, named = self._line.resolve(version if reference is None else reference)
        if named is None:
            named = self._shown if reference is None else list_versions(line.store).latest
        return line, named

    def _write(self, tag: str, line: Line, version: int, *, update: bool) -> None:
        store = line.store
        number = choose_version(store, list_versions(store), version)
        with hold(store, number, self._runtime):
            listing = list_versions(store)
            choose_version(store, listing, number)  # a clean-up may just have removed it
            size, now = store.head(listing.key(number)).size, self._runtime.clock_ns()
            write_tag(line.root, tag, number, size=size, now_ns=now, update=update, branch=line.branch)


class Branches:
    """The branches of a dataset, as they are in its store now."""

    def __init__(self, shown: Snapshot) -> None:
        self._root = Line.of(shown).root

    def list(self) -> dict[str, dict[str, Any]]:
        """All branches by name, with where and when each began."""
        return {name: _of_branch(branch) for name, branch in read_branches(self._root).items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, dict[str, Any]]]:
        """All branches by the time they began, the newest first, or with ``order="asc"`` the oldest."""
        if order not in (None, "asc", "desc"):
            raise InvalidArgumentError(f"order is {order!r}", help="it is asc or desc")
        sign = 1 if order == "asc" else -1
        return sorted(self.list().items(), key=lambda item: (sign * (item[1]["create_at"] or 0), item[0]))

    def delete(self, branch: str) -> None:
        """Remove a branch with its versions.  Raises ``VersionNotFoundError``."""
        delete_branch(self._root, branch)

    def replace_metadata(self, branch: str, metadata: Mapping[Any, Any]) -> None:
        """Put other metadata in the place of a branch's.  Raises ``VersionNotFoundError``."""
        set_branch_metadata(self._root, branch, strings(metadata, "a branch"))


def strings(metadata: Mapping[Any, Any], of: str) -> dict[str, str]:
    """Metadata of a tag or branch.  Raises ``WrongTypeError`` unless all keys and values are strings."""
    wrong = [v for pair in dict(metadata).items() for v in pair if not isinstance(v, str)]
    if wrong:
        raise WrongTypeError(f"the metadata of {of} has {wrong[0]!r}", help="pass strings")
    return dict(metadata)


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


def _time(text: str | None) -> dt.datetime | None:
    """The time in an ISO text, to microseconds; ``None`` where it is none."""
    try:
        return None if text is None else dt.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except ValueError:
        return None
