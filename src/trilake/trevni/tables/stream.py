"""A folder of files as a stream: read each file once, in the order of modification; write each batch exactly once.

Before its commit, a batch is claimed: ``_streams/<query>/<batch>.<attempt>``, written by ``put_if_absent``, has the id
of the only job that may commit it.  If that job can no longer commit, the next attempt claims the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from trilake.common.option_values import MAX_FILES, positive
from trilake.errors import ObjectExistsError, ObjectNotFoundError
from trilake.storage.base import ObjectMeta, Store
from trilake.table.folders import is_hidden
from trilake.table.streams import BatchId, StreamError, delete_old_claims
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import Split, split_of
from trilake.trevni.tables.jobs import visible
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.table_write import TableWritePlan, finish_table_write

#: Time window in ms within which offsets name files: the longest time that a file may be staged.
WINDOW_MS = 3_600_000
_MODULUS = 1 << 53


@dataclass(frozen=True)
class TrevniOffset:
    """An offset of the stream: which files were read.

    ``recent`` are the keys of those modified after ``horizon_ms``; of all others, only the number, ``older``, and a
    hash are kept.  ``added`` are the files of the batch that ends here.

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
        """Parse the JSON of a checkpoint.  Raises ``StreamError`` for other JSON."""
        try:
            return TrevniOffset(
                int(data["horizonMs"]),
                int(data["older"]),
                int(data["olderHash"]),
                tuple(map(str, data["recent"])),
                tuple(map(str, data["added"])),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise StreamError(
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
    """A folder read as a stream; with ``fail_on_data_loss``, changes of files older than the window raise an error."""

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

    def initial(self) -> TrevniOffset:
        """The first offset of a new stream."""
        return TrevniOffset()

    def latest(self, start: TrevniOffset, limit: int | None = None) -> TrevniOffset:
        """Return the end of a batch of at most ``limit`` files from ``start``.  Raises ``StreamError``."""
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
            raise StreamError(
                f"the folder has {len(older)} files older than the stream's window, but the stream read {start.older}:"
                " files arrived late or were removed",
                help="set failOnDataLoss=false to continue without late files, or start with a new checkpoint",
                file=self.store.uri,
            )


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=6).digest(), "big")


def parse_limit(value: str | None) -> int:
    """Parse the option ``maxFilesPerTrigger``, by default 1000.  Raises ``InvalidArgumentError``."""
    return positive("maxFilesPerTrigger", value) or MAX_FILES


def claim_key(batch: BatchId, attempt: int) -> str:
    """Return the key of a claim."""
    return f"{batch.claims}.{attempt}"


def commit_batch(store: Store, plan: TableWritePlan, batch: BatchId, files: Sequence[StagedFile]) -> bool:
    """Commit the staged files of a batch unless it is committed already; returns whether this call did."""
    if not files and not plan.describe and plan.mode != "overwrite":
        return False
    attempt = 0
    while not _claim(store, claim_key(batch, attempt), plan.write_id):
        job = store.read(claim_key(batch, attempt)).to_pybytes().decode()
        if end_job(store, job):
            if job != plan.write_id:
                jobs.remove_staged(store, plan.write_id)
            return False
        attempt += 1
    finish_table_write(store, plan, files)
    delete_old_claims(store, batch, claim_key)
    return True


def _claim(store: Store, key: str, job: str) -> bool:
    try:
        store.put_if_absent(key, job.encode())
    except ObjectExistsError:
        return False
    return True


def end_job(store: Store, job: str) -> bool:
    """End a job and return whether it is committed; if not, it can never commit."""
    outcome = jobs.record_outcome(store, job, "aborted")
    plan = jobs.plan_of(store, job)
    if plan is not None:
        if outcome == "aborted":
            jobs.remove_staged(store, job)  # if the driver is still moving these files, it must fail
        jobs.complete(store, job, plan, outcome, keep_records=outcome == "aborted")
        return outcome == "committed"
    if outcome == "committed":
        return True
    # A complete job has no records any more, but the names of its files contain its id.
    landed = any(job in m.key for m in jobs.visible(store) if not m.key.startswith(("_", ".")))
    if landed:
        with suppress(ObjectNotFoundError):
            store.delete([jobs.end_key(job)])
    return landed
