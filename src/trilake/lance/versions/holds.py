"""Holds and removals: how clean-ups, and whoever needs an old version, see each other.

A clean-up announces the versions that it removes; whoever tags or restores a version holds it meanwhile.  Each writes
its own notice first and looks for the other's then::

    clean-up:        announce removal --> holds, tags and newest versions? --> delete what nobody needs --> withdraw
    tag or restore:  hold --> removal? manifest there? --> write the tag, or commit --> release

So of two that meet at least one sees the other: the version stays, or it gets no tag.  A hold is looked for before what
it is replaced by, the tag or the version.  A process that dies leaves its notice.  A hold counts for a week, which is
longer than a tag takes to be written.  A removal counts until its versions are gone, as they may have lost files; or
until it is a week old and a clean-up finds that they have not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from trilake.common.runtime import Runtime
from trilake.errors import ObjectNotFoundError, UnknownOutcomeError
from trilake.lance.file.errors import CommitConflictError
from trilake.storage.base import Store
from trilake.storage.ownership import discard

_log = logging.getLogger("trilake.lance")

HOLDS, REMOVALS = "_refs/holds", "_refs/removals"
#: Age in ms from which on a notice is that of a process which has died.
FORGOTTEN_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Notice:
    """What a process has written of itself: the versions that it holds or removes; ``None`` where it cannot be read,
    and may be any."""

    key: str
    versions: frozenset[int] | None
    modified_ms: int

    def names(self, version: int) -> bool:
        """Whether it is about a version, as far as can be told."""
        return self.versions is None or version in self.versions

    def forgotten(self, now_ms: int) -> bool:
        """Whether nobody is left whose notice it is."""
        return now_ms - self.modified_ms >= FORGOTTEN_MS


def _post(store: Store, folder: str, versions: Iterable[int], runtime: Runtime) -> str:
    key = f"{folder}/{runtime.new_id()}.json"
    store.put(key, orjson.dumps({"versions": sorted(versions)}))
    return key


def _posted(store: Store, folder: str) -> list[Notice]:
    """The notices in a folder; one that is taken back meanwhile is none."""
    found = []
    for meta in store.list(folder):
        versions: frozenset[int] | None = None
        try:
            versions = frozenset(int(v) for v in orjson.loads(store.read(meta.key).to_pybytes())["versions"])
        except ObjectNotFoundError:
            continue
        except (ValueError, TypeError, KeyError) as e:
            _log.warning("%s/%s cannot be read, and counts for every version: %r", store.uri, meta.key, e)
        found.append(Notice(meta.key, versions, meta.modified_ms))
    return found


@contextmanager
def held(store: Store, version: int, runtime: Runtime) -> Iterator[None]:
    """Within, no clean-up that looks for holds removes the version; whether it is still there is the caller's to see.

    Raises ``ConflictError`` where one is about to remove it already.
    """
    key = _post(store, HOLDS, [version], runtime)
    try:
        if any(removal.names(version) for removal in removals(store)):
            raise CommitConflictError(
                f"version {version} is being removed by a clean-up",
                help="choose a version that stays; if that clean-up has died, run it again",
                file=store.uri,
                version=version,
            )
        yield
    except UnknownOutcomeError:
        raise  # what was asked for may still come: the hold stays until it is forgotten
    except Exception:
        discard(store, [key])
        raise
    discard(store, [key])


def holds(store: Store) -> list[Notice]:
    """What is held, by whoever is left."""
    return _posted(store, HOLDS)


def announce(store: Store, versions: Iterable[int], runtime: Runtime) -> str:
    """Say that versions are about to be removed; the key of the notice."""
    return _post(store, REMOVALS, versions, runtime)


def removals(store: Store) -> list[Notice]:
    """What clean-ups are about to remove, or were when they died."""
    return _posted(store, REMOVALS)
