"""A folder of files as a stream: every file once, by the time it was written.

There is no log, so an offset must say which files were read.  It names those of the batch that ends there and those
younger than a window, and of all older ones keeps their number and a sum of hashes of their names::

    {"horizonMs": 1700000000000, "older": 12, "olderHash": 8123, "recent": ["part-7.trv"], "added": ["part-8.trv"]}

``horizonMs`` is the time up to which files are only counted.  A file that appears behind it, as one may that was staged
for longer than the window, changes the count or the sum: that is an error, never a file passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from trilake.common.option_values import MAX_FILES, positive
from trilake.errors import TrilakeError
from trilake.storage.base import ObjectMeta, Store
from trilake.trevni.tables.dataset import Split, is_hidden, split_of
from trilake.trevni.tables.jobs import visible

#: How long a file may be under way before it appears, in ms: the window in which files are known by name.
WINDOW_MS = 3_600_000
_MODULUS = 1 << 53


class TrevniStreamError(TrilakeError):
    """A stream that reads or writes a folder cannot go on."""

    code = "STREAM"


@dataclass(frozen=True)
class TrevniOffset:
    """A place in the stream; see the head of this module.

    >>> o = TrevniOffset(0, 0, 0, ("a",), ("a",))
    >>> TrevniOffset.from_json(o.to_json()) == o
    True
    """

    horizon_ms: int = -1
    older: int = 0
    older_hash: int = 0
    recent: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TrevniOffset:
        """From the JSON of a checkpoint; raises ``TrevniStreamError`` for anything else."""
        try:
            return TrevniOffset(
                int(data["horizonMs"]),
                int(data["older"]),
                int(data["olderHash"]),
                tuple(map(str, data["recent"])),
                tuple(map(str, data["added"])),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise TrevniStreamError(
                f"the checkpoint's offset {str(data)[:200]} is none of a folder of Trevni files",
                help="use the checkpoint of a query that reads this folder, or a new one",
            ) from e

    def to_json(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "horizonMs": self.horizon_ms,
            "older": self.older,
            "olderHash": self.older_hash,
            "recent": list(self.recent),
            "added": list(self.added),
        }


class TrevniStream:
    """A folder read as a stream.

    ``fail_on_data_loss`` is whether files that come or go behind the horizon end it.
    """

    def __init__(self, store: Store, *, fail_on_data_loss: bool = True, window_ms: int = WINDOW_MS) -> None:
        self.store, self.fail_on_data_loss, self.window_ms = store, fail_on_data_loss, window_ms
        self._until: frozenset[str] | None = None

    def _files(self) -> list[ObjectMeta]:
        """The files that readers see, in the order of the stream."""
        objects = [m for m in visible(self.store) if not is_hidden(m.key)]
        return sorted(objects, key=lambda m: (m.modified_ms, m.key))

    def stop_at_newest(self) -> None:
        """Leave files that appear from now on to a later run."""
        self._until = frozenset(m.key for m in self._files())

    def latest(self, start: TrevniOffset, limit: int | None = None) -> TrevniOffset:
        """The end of the batch of at most ``limit`` files that begins at ``start``.

        Raises ``TrevniStreamError`` where files came or went that are older than the window.
        """
        files = self._files()
        self._check_older(files, start)
        seen = set(start.recent)
        young = [m for m in files if m.modified_ms > start.horizon_ms]
        new = [m for m in young if m.key not in seen and (self._until is None or m.key in self._until)]
        taken = new[:limit]
        if not taken:
            return start
        # No file that is still to be read may be behind the horizon.
        horizon = max(start.horizon_ms, taken[-1].modified_ms - self.window_ms)
        seen.update(m.key for m in taken)
        known = [m for m in young if m.key in seen]
        passed = [m.key for m in known if m.modified_ms <= horizon]
        return TrevniOffset(
            horizon,
            start.older + len(passed),
            (start.older_hash + sum(map(_hash, passed))) % _MODULUS,
            tuple(m.key for m in known if m.modified_ms > horizon),
            tuple(m.key for m in taken),
        )

    def batch(self, end: TrevniOffset) -> list[Split]:
        """The files of the batch that ends at ``end``."""
        return [split_of(self.store, key) for key in end.added]

    def _check_older(self, files: Sequence[ObjectMeta], start: TrevniOffset) -> None:
        older = [m.key for m in files if m.modified_ms <= start.horizon_ms]
        if len(older) == start.older and sum(map(_hash, older)) % _MODULUS == start.older_hash:
            return
        if self.fail_on_data_loss:
            raise TrevniStreamError(
                f"the folder has {len(older)} files older than the stream's window, and {start.older} were read: files"
                " came late or went",
                help="set failOnDataLoss=false to go on without files that came late, or start with a new checkpoint",
                file=self.store.uri,
            )


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=6).digest(), "big")


def parse_limit(text: str | None) -> int:
    """The option ``maxFilesPerTrigger``, 1000 by default.  Raises ``InvalidArgumentError``."""
    return positive("maxFilesPerTrigger", text) or MAX_FILES
