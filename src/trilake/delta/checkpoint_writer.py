"""Writing checkpoints: the state of a snapshot as one Parquet file, and the hint that points at it.

Protocol: *Checkpoints*, *Requirements for Writers*.  Columnar: the adds are Arrow already, the other actions are a few
rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.delta.actions import ADD, DELETION_VECTOR, REMOVE
from trilake.delta.last_checkpoint import make_hint
from trilake.delta.log import DeltaLog, Snapshot
from trilake.delta.runtime import Runtime
from trilake.delta.segment import LAST_CHECKPOINT, checkpoint_key

_MAP = pa.map_(pa.string(), pa.string())
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_DOMAIN = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])
_WEEK_MS = 7 * 24 * 3600 * 1000
_UNITS_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def interval_ms(text: str, default: int) -> int:
    """A duration property such as ``interval 30 days`` in ms.

    >>> interval_ms("interval 1 week", 0)
    604800000
    """
    parts = re.findall(r"(\d+)\s*(millisecond|second|minute|hour|day|week)s?", text.lower())
    return sum(int(n) * _UNITS_MS[unit] for n, unit in parts) if parts else default


def write_checkpoint(log: DeltaLog, snapshot: Snapshot, runtime: Runtime) -> None:
    """Write the checkpoint of ``snapshot`` and point ``_last_checkpoint`` at it.

    Tombstones older than ``delta.deletedFileRetentionDuration`` are left out, as the protocol allows.
    """
    retention = interval_ms(snapshot.property("delta.deletedFileRetentionDuration", "interval 1 week"), _WEEK_MS)
    removes = log.tombstones(snapshot)
    expiry = runtime.clock_ms() - retention
    removes = removes.filter(pc.greater(pc.fill_null(removes["deletionTimestamp"], 0), expiry))
    table = checkpoint_table(snapshot, removes)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", use_dictionary=["protocol.minReaderVersion"], store_schema=False)
    data = sink.getvalue()
    log.store.put(checkpoint_key(snapshot.version), data)
    hint = make_hint(
        snapshot.version, size=table.num_rows, size_in_bytes=data.size, num_add_files=snapshot.adds.num_rows
    )
    log.store.put(LAST_CHECKPOINT, hint)


def checkpoint_table(snapshot: Snapshot, removes: pa.Table) -> pa.Table:
    """One row an action, one struct column a kind."""
    state = snapshot.state
    metadata = snapshot.metadata.to_json()
    metadata["configuration"] = list(metadata["configuration"].items())
    metadata["format"] = {
        "provider": snapshot.metadata.provider,
        "options": list(snapshot.metadata.format_options.items()),
    }
    parts = [
        _rows("protocol", _PROTOCOL, [snapshot.protocol.to_json()]),
        _rows("metaData", _METADATA, [metadata]),
        _rows("txn", _TXN, list(state.txns.values())),
        _rows("domainMetadata", _DOMAIN, list(state.domains.values())),
        _files("add", ADD, snapshot.adds),
        _files("remove", REMOVE, removes),
    ]
    order = ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
    table = pa.concat_tables(
        [p for p in parts if p.num_rows or p.column_names[0] != "domainMetadata"], promote_options="default"
    )
    return table.select([n for n in order if n in table.column_names])


def _rows(name: str, type_: pa.StructType, rows: Sequence[Any]) -> pa.Table:
    return pa.table({name: pa.array([{f.name: r.get(f.name) for f in type_} for r in rows], type_)})


def _files(name: str, type_: pa.StructType, files: pa.Table) -> pa.Table:
    arrays, fields = [], []
    for f in type_:
        column = files[f.name]
        if f.name == "dataChange":
            column = pa.chunked_array([pa.repeat(False, len(column))]) if len(column) else column
        elif f.name == "partitionValues":
            pass
        elif f.type != DELETION_VECTOR and column.null_count == len(column) and f.name not in ("stats", "tags"):
            continue  # a column that no action uses
        arrays.append(column)
        fields.append(f)
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    struct = table.to_struct_array() if table.num_rows else pa.chunked_array([], pa.struct(fields))
    return pa.table({name: struct})
