"""``Tags``: the names of a dataset's versions."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions.holds import held
from trilake.lance.versions.versions import (
    Tag,
    choose_version,
    delete_tag,
    list_versions,
    read_tag,
    read_tags,
    say_of_tag,
    write_tag,
)
from trilake.storage.base import Store

#: A version by its number, by the name of a tag, or by that of the main line and its number.
Reference = int | str | tuple[Any, ...] | None


def numbered(store: Store, reference: Reference) -> int | None:
    """The number of a version that is named in any way; ``None`` for the one that is there anyway.

    Raises ``VersionNotFoundError`` for a tag that there is not, ``InvalidArgumentError`` for a branch.
    """
    if isinstance(reference, str):
        return read_tag(store, reference).version
    if not isinstance(reference, tuple):
        return reference
    if len(reference) != 2 or reference[0] not in (None, "main"):
        raise InvalidArgumentError(f"{reference!r} names no version of the main line", help="pass its number, or a tag")
    number: int | None = reference[1]
    return number


class Tags:
    """The tags of a dataset, as they are in its store now; those of branches are left out."""

    def __init__(self, shown: Snapshot) -> None:
        self._store, self._runtime, self._shown = shown.store, shown.runtime, shown.version

    def list(self) -> dict[str, dict[str, Any]]:
        """All tags by name: ``version``, ``manifest_size`` in bytes, ``created_at``, ``updated_at``, ``metadata``."""
        return {name: _described(tag) for name, tag in read_tags(self._store).items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, dict[str, Any]]]:
        """All tags by their versions, the newest first, or with ``order="asc"`` the oldest."""
        if order not in (None, "asc", "desc"):
            raise InvalidArgumentError(f"order is {order!r}", help="it is asc or desc")
        sign = 1 if order == "asc" else -1
        return sorted(self.list().items(), key=lambda item: (sign * item[1]["version"], item[0]))

    def get_version(self, tag: str) -> int:
        """The version that a tag names.  Raises ``VersionNotFoundError``."""
        return read_tag(self._store, tag).version

    def create(self, tag: str, reference: Reference = None, *, version: int | None = None) -> None:
        """Name a version, by default the one that the dataset shows.

        ``reference`` is its number, the name of another tag, or a pair of a branch, which can only be ``None`` or
        ``"main"``, and a number; ``version`` is another name of it.  Raises ``InvalidArgumentError`` where the tag is
        there, ``VersionNotFoundError``, and ``ConflictError`` where a clean-up is about to remove the version.
        """
        self._write(tag, self._version(reference, version), update=False)

    def update(self, tag: str, reference: Reference = None, *, version: int | None = None) -> None:
        """Let a tag name another version, by default the one that is shown; see :meth:`create`.

        Its metadata stays.
        """
        self._write(tag, self._version(reference, version), update=True)

    def replace_metadata(self, tag: str, metadata: Mapping[Any, Any]) -> None:
        """Put other metadata in the place of a tag's.  Raises ``VersionNotFoundError``."""
        wrong = [v for pair in dict(metadata).items() for v in pair if not isinstance(v, str)]
        if wrong:
            raise WrongTypeError(f"the metadata of a tag has {wrong[0]!r}", help="pass texts by text")
        say_of_tag(self._store, tag, metadata)

    def delete(self, tag: str) -> None:
        """Remove a tag; the version stays.  Raises ``VersionNotFoundError``."""
        delete_tag(self._store, tag)

    def _version(self, reference: Reference, version: int | None) -> int:
        if reference is not None and version is not None:
            raise InvalidArgumentError("reference and version both say which version", help="leave one of them out")
        named = version if reference is None else numbered(self._store, reference)
        return self._shown if named is None else named

    def _write(self, tag: str, version: int, *, update: bool) -> None:
        number = choose_version(self._store, list_versions(self._store), version)
        with held(self._store, number, self._runtime):
            listing = list_versions(self._store)
            choose_version(self._store, listing, number)  # a clean-up may just have removed it
            size = self._store.head(listing.key(number)).size
            write_tag(self._store, tag, number, size=size, now_ns=self._runtime.clock_ns(), update=update)


def _described(tag: Tag) -> dict[str, Any]:
    return {
        "branch": None,
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
