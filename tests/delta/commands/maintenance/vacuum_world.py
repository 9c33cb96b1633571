"""A table in memory whose writers, store and vacuum share one clock."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.delta.tables import rows
from tests.runtimes import runtime_in_ms
from trilake.delta.commands.maintenance.vacuum import VacuumResult, vacuum
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.storage.memory import MemoryStore

HOUR = 3_600_000
WEEK = 168
LATER = runtime_in_ms(lambda: 1000 * HOUR)
SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])


@dataclass
class World:
    """A table in memory, the clock of its writers and its store, and the rows of every version."""

    now: int = 1_000_000 * HOUR
    configuration: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] | None = None
    ids: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))
    versions: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=lambda: self.now)
        self.runtime = runtime_in_ms(
            lambda: self.now, new_id=lambda: str(uuid.UUID(int=next(self.ids))), sleep=lambda _: None
        )
        self.log = DeltaLog(self.store, standard_engine(runtime=self.runtime))

    def write(self, values: list[tuple[int, int]], mode: Any = "append", **request: Any) -> None:
        table = pa.table({"p": [p for p, _ in values], "n": [n for _, n in values]}, schema=SCHEMA)
        if not self.versions:
            request |= {"properties": self.configuration, "partition_by": self.partition_by}
        write_request = WriteRequest(mode, from_arrow(SCHEMA), **request)
        write_arrow(self.log, SCHEMA, iter(table.to_batches()), write_request)
        self.now += 1000  # commits never have equal times
        self.note()

    def note(self) -> None:
        """Record the rows of the newest version and of unrecorded earlier ones."""
        newest = self.log.head().version
        for v in range(max(self.versions, default=-1) + 1, newest + 1):
            self.versions[v] = rows(self.read(v))

    def read(self, version: int | None = None) -> pa.Table:
        return ArrowDeltaTable(self.store, standard_engine(), version=version).to_arrow()

    def vacuum(self, **options: Any) -> VacuumResult:
        done = vacuum(self.log, **options)
        self.note()
        return done

    def put(self, key: str) -> None:
        self.store.put(key, b"x")

    def exists(self, key: str) -> bool:
        return any(o.key == key for o in self.store.list())

    def current_since(self, cutoff: int) -> list[int]:
        """The versions that were the newest one at the cut-off time or later."""
        times = {v: o.modified_ms for v, o in self.log.commits()}
        newest = max(times)
        return [v for v in times if v == newest or times[v + 1] >= cutoff]
