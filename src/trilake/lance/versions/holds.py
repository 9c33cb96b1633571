"""Holds and removals: notices between clean-ups and processes that need an old version.

A clean-up announces the versions that it removes; a process that tags or restores a version holds it.  Each writes its
own notice first, and then looks for the other's::

    clean-up:        announce removal --> holds, tags and newest versions? --> delete what is not needed --> withdraw
    tag or restore:  hold --> removal? manifest there? --> write the tag, or commit --> release

So if the two meet, at least one sees the other: the version stays, or it gets no tag.  A clean-up looks for a hold
before it looks for the tag or version that replaces the hold.  A process that dies leaves its notice.  A hold is valid
for a week, which is longer than writing a tag takes.  A removal is valid until its versions are gone, because they may
lack files already, or until it is a week old and a clean-up finds that they lack none.
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
#: Age in ms at which the process of a notice is considered dead.
FORGOTTEN_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Notice:
    """The versions that a process holds or removes; ``None`` means any version: the notice cannot be read."""

    key: str
    versions: frozenset[int] | None
    modified_ms: int

    def names(self, version: int) -> bool:
        """Whether it concerns, or may concern, a version."""
        return self.versions is None or version in self.versions

    def forgotten(self, now_ms: int) -> bool:
        """Whether its process is dead, judging by its age."""
        return now_ms - self.modified_ms >= FORGOTTEN_MS


def post(store: Store, folder: str, versions: Iterable[int], runtime: Runtime) -> str:
    """Write a notice to :data:`HOLDS` or :data:`REMOVALS`; return its key."""
    key = f"{folder}/{runtime.new_id()}.json"
    store.put(key, orjson.dumps({"versions": sorted(versions)}))
    return key


def notices(store: Store, folder: str) -> list[Notice]:
    """Read the notices in :data:`HOLDS` or :data:`REMOVALS`."""
    current = []
    for meta in store.list(folder):
        versions: frozenset[int] | None = None
        try:
            versions = frozenset(int(v) for v in orjson.loads(store.read(meta.key).to_pybytes())["versions"])
        except ObjectNotFoundError:
            continue
        except (ValueError, TypeError, KeyError) as e:
            _log.warning("%s/%s cannot be read, so it applies to all versions: %r", store.uri, meta.key, e)
        current.append(Notice(meta.key, versions, meta.modified_ms))
    return current


@contextmanager
def hold(store: Store, version: int, runtime: Runtime) -> Iterator[None]:
    """Keep a version from clean-ups; the caller checks that it exists.  Raises ``ConflictError`` if one removes it."""
    key = post(store, HOLDS, [version], runtime)
    try:
        if any(removal.names(version) for removal in notices(store, REMOVALS)):
            raise CommitConflictError(
                f"a cleanup is deleting version {version}",
                help="choose a later version; if the cleanup has failed, run it again",
                file=store.uri,
                version=version,
            )
        yield
    except UnknownOutcomeError:
        raise  # the tag or version may still appear: the hold stays until it expires
    except Exception:
        discard(store, [key])
        raise
    discard(store, [key])
