"""A log in memory whose checkpoint sidecars have ten files each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tests.delta.tables import add, lines, metadata, protocol, rows
from tests.fault_store import FaultStore
from tests.runtimes import runtime_in_ms
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import sidecar_keys
from trilake.delta.log.checkpoint_writer import PART_SIZE, write_checkpoint
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import SIDECARS, commit_key
from trilake.delta.standard import standard_engine
from trilake.storage.memory import MemoryStore

DAY_MS = 24 * 3600 * 1000
FEATURES = ["v2Checkpoint", "deletionVectors"]
FIRST = protocol(3, 7, readerFeatures=FEATURES, writerFeatures=[*FEATURES, "domainMetadata"])


class ShuffledJobs:
    """Jobs in this process whose results arrive out of order."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        return [function(t) for t in reversed(tasks)]

    def repeated(self, strings: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        counts = Counter(t for task in tasks for column in strings(task) for t in column.to_pylist())
        return next((t for t, count in counts.items() if count > 1), None)


class World:
    """A log in memory with a clock and hourly commits; full sidecars have ten files."""

    jobs: ClassVar[Jobs | None] = None

    def __init__(self, *first: Any, **conf: str) -> None:
        self.now = 1_000 * DAY_MS
        self.inner = MemoryStore(clock=lambda: self.now)
        self.store = FaultStore(self.inner)
        self.log = DeltaLog(self.store, standard_engine(jobs=lambda *_: self.jobs))
        ids = itertools.count()
        self.runtime = runtime_in_ms(lambda: self.now, lambda: f"{next(ids):08d}-0000-4000-8000-000000000000")
        self.version = -1
        self.commit(FIRST, metadata(**{"delta.checkpointPolicy": "v2", PART_SIZE: "10", **conf}), *first)

    def commit(self, *actions: Any) -> None:
        self.version += 1
        self.now += 3_600_000
        self.inner.put(commit_key(self.version), lines(actions))

    def checkpoint(self) -> FileTotals | None:
        """Write the checkpoint of the newest version, recording only its store calls."""
        opened = self.log.opened()
        self.store.calls.clear()
        return write_checkpoint(self.log, opened, self.runtime)

    def called(self, op: str) -> list[str]:
        """The sidecars that were passed to a kind of call."""
        return [k for c in self.store.calls if c.op == op for k in c.keys if k.startswith(f"{SIDECARS}/")]

    @property
    def written(self) -> list[str]:
        return [*self.called("put"), *self.called("close")]

    @property
    def named(self) -> list[str]:
        """The sidecars of the newest checkpoint."""
        return sidecar_keys(self.inner, DeltaLog(self.inner).segment())


def files(names: Sequence[str], **fields: Any) -> list[dict[str, Any]]:
    return [add(n, **fields) for n in names]


def numbered(first: int, last: int, folder: str = "d") -> list[str]:
    return [f"{folder}/f{i:04d}" for i in range(first, last)]


def same_as_commits(world: World) -> None:
    """Check that the newest checkpoint equals a replay of all commits."""
    log = DeltaLog(world.inner)
    copy = MemoryStore()
    for v in range(world.version + 1):
        copy.put(commit_key(v), world.inner.read(commit_key(v)))
    true = DeltaLog(copy)
    result, expected = log.snapshot(), true.snapshot()
    assert result.segment.checkpoint_version == world.version
    assert rows(result.adds.drop_columns(["dataChange"])) == rows(expected.adds.drop_columns(["dataChange"]))
    assert sorted(log.tombstones(result)["path"].to_pylist()) == sorted(true.tombstones(expected)["path"].to_pylist())
    assert result.state.txns == expected.state.txns
