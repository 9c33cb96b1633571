"""Hand-made logs and tables for tests of the Delta layer, which trilake would never write."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import trilake
from tests.fault_store import Fault, FaultStore
from tests.runtimes import runtime_in_ms
from trilake.common.runtime import Runtime
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.deletion_vectors import serialize, z85_encode
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.memory import MemoryStore
from trilake.table.results import WriteResult

Action = Mapping[str, Any]

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
LONG_A = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'


def fresh_id() -> str:
    """Return a unique id."""
    return str(uuid4())


def new_uri() -> str:
    """Return the URI of a new table in memory."""
    return f"memory://{uuid4()}"


def protocol(reader: int = 1, writer: int = 2, **features: Sequence[str]) -> dict[str, Any]:
    """Return a protocol action; ``readerFeatures`` and ``writerFeatures`` by keyword."""
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}


def metadata(schema: str = LONG_A, partition: Sequence[str] = (), **configuration: str) -> dict[str, Any]:
    """Return a metaData action; two underscores in configuration keys become dots."""
    return {
        "metaData": {
            "id": "table-id",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(partition),
            "configuration": {k.replace("__", "."): v for k, v in configuration.items()},
            "createdTime": 0,
        }
    }


def add(path: str, **fields: Any) -> dict[str, Any]:
    """Return an add action."""
    base = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {**base, **fields}}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    """Return a remove action."""
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **fields}}


def inline_vector(*deleted: int, **changed: Any) -> dict[str, Any]:
    """Return a deletion vector that is stored in the log."""
    data = serialize(BitMap64(deleted))
    vector = {"storageType": "i", "pathOrInlineDv": z85_encode(data), "sizeInBytes": len(data)}
    return {**vector, "cardinality": len(deleted), **changed}


def lines(actions: Iterable[Action]) -> bytes:
    """Return the content of a commit file."""
    return b"".join(json.dumps(a).encode() + b"\n" for a in actions)


def log_of(*commits: Sequence[Action], store: Store | None = None, start: int = 0) -> DeltaLog:
    """Return a log with these actions per commit; the first gets a protocol and metadata if it has none."""
    place = store or MemoryStore()
    for version, actions in enumerate(commits, start):
        kinds = {k for a in actions for k in a}
        extra: list[Action] = []
        if version == 0:
            extra = [a for a in (protocol(), metadata()) if not kinds & set(a)]
        place.put(commit_key(version), lines([*extra, *actions]))
    return DeltaLog(place, standard_engine())


def parquet(table: pa.Table, **options: Any) -> bytes:
    """Return the bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def opened(uri: str | Path, **options: Any) -> ArrowDeltaTable:
    """The Delta table at a place."""
    table = trilake.open(uri, **options)
    assert isinstance(table, ArrowDeltaTable)
    return table


def write(log: DeltaLog, rows: pa.Table, mode: Any = "append", **request: Any) -> WriteResult:
    """Write rows in one commit; ``request`` are other fields of the request."""
    return write_arrow(log, rows.schema, rows.to_batches(), WriteRequest(mode, from_arrow(rows.schema), **request))


def table_of(
    *files: pa.Table | bytes,
    schema: str | pa.Schema | None = None,
    fields: Sequence[Mapping[str, Any]] = (),
    configuration: Mapping[str, str] | None = None,
    partition: Sequence[str] = (),
    store: Store | None = None,
    protocol_action: Action | None = None,
) -> ArrowDeltaTable:
    """Return a table of version 0 over Parquet files named ``f0``, ``f1`` ...; ``fields`` extend their add actions."""
    place = store or MemoryStore()
    if schema is None:
        assert isinstance(files[0], pa.Table)
        schema = files[0].schema
    text = schema if isinstance(schema, str) else from_arrow(schema).json()
    adds = []
    for i, content in enumerate(files):
        data = content if isinstance(content, bytes) else parquet(content)
        place.put(f"f{i}", data)
        adds.append(add(f"f{i}", **{"size": len(data), **(fields[i] if i < len(fields) else {})}))
    meta = metadata(text, partition)
    meta["metaData"]["configuration"] = dict(configuration or {})
    listed = ["columnMapping"] if "delta.columnMapping.mode" in meta["metaData"]["configuration"] else []
    first = protocol_action or protocol(3, 7, readerFeatures=listed, writerFeatures=listed)
    place.put(commit_key(0), lines([first, meta, *adds]))
    return ArrowDeltaTable(place, standard_engine())


def fixed_runtime(start_ms: int = 1_600_000_000_000) -> Runtime:
    """Return a runtime whose clock ticks by a second and whose ids count up."""
    ticks, ids = count(), count()
    return runtime_in_ms(
        lambda: start_ms + 1000 * next(ticks),
        new_id=lambda: f"{next(ids):08d}-0000-4000-8000-000000000000",
        sleep=lambda _: None,
    )


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows in an order that does not depend on the read."""
    return sorted(table.to_pylist(), key=repr)


class ClockedStore(FaultStore):
    """A store with a test clock: files written to ask for the time get the time of ``clock()``."""

    def __init__(self, inner: Store, clock: Callable[[], int], faults: Iterable[Fault] = ()) -> None:
        super().__init__(inner, faults)
        self.clock = clock

    def head(self, key: str) -> ObjectMeta:
        meta = super().head(key)
        return replace(meta, modified_ms=self.clock()) if ".trilake-" in key else meta


def clocked(log: DeltaLog, clock: Callable[[], int]) -> DeltaLog:
    """Return the log with the clock ``clock``, which its store has, too."""
    return with_runtime(DeltaLog(ClockedStore(log.store, clock), log.engine), runtime_in_ms(clock))


def with_runtime(log: DeltaLog, runtime: Runtime) -> DeltaLog:
    """Return the log with another clock, ids and waiting."""
    return DeltaLog(log.store, replace(log.engine, runtime=runtime))
