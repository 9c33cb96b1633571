"""Read a folder of files as a stream: each file once, in the order of modification times.

Without a log, an offset must describe the files that were read.  It contains the names of the files in its batch and of
those within a time window; older files are represented by their number and the sum of the hashes of their names::

    {"horizonMs": 1700000000000, "older": 12, "olderHash": 8123, "recent": ["part-7.trv"], "added": ["part-8.trv"]}

If a file with a modification time up to ``horizonMs`` appears later, for example because it was staged for longer than
the window, the number and the sum differ.  Then the stream raises an error instead of skipping the file.
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

#: Time window in ms within which offsets name files: the longest time that a file may be staged.
WINDOW_MS = 3_600_000
_MODULUS = 1 << 53


class TrevniStreamError(TrilakeError):
    """A stream of a folder cannot continue."""

    code = "STREAM"


@dataclass(frozen=True)
class TrevniOffset:
    """An offset of the stream; see the module docstring.

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
        """Parse the JSON of a checkpoint.  Raises ``TrevniStreamError`` for other JSON."""
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
                f"expected the offset of a folder of Trevni files in the checkpoint, got {str(data)[:200]}",
                help="use the checkpoint of a query that reads this folder, or a new one",
            ) from e

    def to_json(self) -> dict[str, Any]:
        """Convert to a JSON object."""
        return {
            "horizonMs": self.horizon_ms,
            "older": self.older,
            "olderHash": self.older_hash,
            "recent": list(self.recent),
            "added": list(self.added),
        }


class TrevniStream:
    """A folder read as a stream.

    With ``fail_on_data_loss``, changes of files older than the window raise an error.
    """

    def __init__(self, store: Store, *, fail_on_data_loss: bool = True, window_ms: int = WINDOW_MS) -> None:
        self.store, self.fail_on_data_loss, self.window_ms = store, fail_on_data_loss, window_ms
        self._until: frozenset[str] | None = None

    def _files(self) -> list[ObjectMeta]:
        """List the visible files in the order of the stream."""
        objects = [m for m in visible(self.store) if not is_hidden(m.key)]
        return sorted(objects, key=lambda m: (m.modified_ms, m.key))

    def stop_at_newest(self) -> None:
        """Ignore files that appear from now on."""
        self._until = frozenset(m.key for m in self._files())

    def latest(self, start: TrevniOffset, limit: int | None = None) -> TrevniOffset:
        """Return the end of a batch of at most ``limit`` files that starts at ``start``.

        Raises ``TrevniStreamError`` if files older than the window appeared or disappeared.
        """
        files = self._files()
        self._check_older(files, start)
        seen = set(start.recent)
        young = [m for m in files if m.modified_ms > start.horizon_ms]
        new = [m for m in young if m.key not in seen and (self._until is None or m.key in self._until)]
        batch_files = new[:limit]
        if not batch_files:
            return start
        # Unread files must be after the horizon.
        horizon = max(start.horizon_ms, batch_files[-1].modified_ms - self.window_ms)
        seen.update(m.key for m in batch_files)
        read = [m for m in young if m.key in seen]
        passed = [m.key for m in read if m.modified_ms <= horizon]
        return TrevniOffset(
            horizon,
            start.older + len(passed),
            (start.older_hash + sum(map(_hash, passed))) % _MODULUS,
            tuple(m.key for m in read if m.modified_ms > horizon),
            tuple(m.key for m in batch_files),
        )

    def batch(self, end: TrevniOffset) -> list[Split]:
        """Return the files of the batch that ends at ``end``."""
        return [split_of(self.store, key) for key in end.added]

    def _check_older(self, files: Sequence[ObjectMeta], start: TrevniOffset) -> None:
        older = [m.key for m in files if m.modified_ms <= start.horizon_ms]
        if len(older) == start.older and sum(map(_hash, older)) % _MODULUS == start.older_hash:
            return
        if self.fail_on_data_loss:
            raise TrevniStreamError(
                f"the folder has {len(older)} files older than the stream's window, and {start.older} were read: files"
                " arrived late or were removed",
                help="set failOnDataLoss=false to continue without late files, or start with a new checkpoint",
                file=self.store.uri,
            )


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=6).digest(), "big")


def parse_limit(value: str | None) -> int:
    """Parse the option ``maxFilesPerTrigger``, by default 1000.  Raises ``InvalidArgumentError``."""
    return positive("maxFilesPerTrigger", value) or MAX_FILES
