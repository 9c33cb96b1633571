"""DESCRIBE HISTORY and DESCRIBE DETAIL: one row per commit, and one row about the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from trilake.common.compute import pc
from trilake.common.display import text_of
from trilake.common.text import format_size
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import BEFORE, DeltaLog
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot
from trilake.delta.protocol.features import features_of
from trilake.delta.protocol.schema_edit import format_path
from trilake.errors import InvalidArgumentError, masked

_MAP = pa.map_(pa.string(), pa.string())
JOB = pa.struct([(n, pa.string()) for n in ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")])
NOTEBOOK = pa.struct([("notebookId", pa.string())])

_MILLISECONDS = pa.timestamp("ms", "UTC")
HISTORY = pa.schema(
    {
        "version": pa.int64(),
        "timestamp": _MILLISECONDS,
        **dict.fromkeys(("userId", "userName", "operation"), pa.string()),
        "operationParameters": _MAP,
        "job": JOB,
        "notebook": NOTEBOOK,
        "clusterId": pa.string(),
        "readVersion": pa.int64(),
        "isolationLevel": pa.string(),
        "isBlindAppend": pa.bool_(),
        "operationMetrics": _MAP,
        "userMetadata": pa.string(),
        "engineInfo": pa.string(),
    }
)


def history(log: DeltaLog, snapshot: Head, limit: int | None = None) -> pa.Table:
    """List the commits up to the snapshot's version that are still in the log, newest first, at most ``limit``."""
    start = 0
    if limit is not None:
        count: object = limit
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(f"limit must be an integer >= 0, got {limit!r:.80}")
        start = max(0, snapshot.version + 1 - limit - BEFORE)
    commits = log.commits(start=start, end=snapshot.version)
    listed = commits if limit is None else commits[len(commits) - min(limit, len(commits)) :]
    infos = log.commit_infos(listed)
    times = log.commit_times(commits, snapshot.metadata, infos, first=listed[0][0]) if listed else []
    rows = [_row(v, time, infos.get(v) or {}) for (v, _), time in zip(listed, times, strict=True)]
    return pa.Table.from_pylist(rows[::-1], schema=HISTORY)


def _row(version: int, time_ms: int, info: Mapping[str, Any]) -> dict[str, Any]:
    blind = info.get("isBlindAppend")
    return {
        "version": version,
        "timestamp": time_ms,
        "readVersion": _integer(info.get("readVersion")),
        "isBlindAppend": blind if isinstance(blind, bool) else None,
        "operationParameters": _map(info.get("operationParameters")),
        "operationMetrics": _map(info.get("operationMetrics")),
        "job": _struct(info.get("job"), JOB),
        "notebook": _struct(info.get("notebook"), NOTEBOOK),
    } | {name: _text(info.get(name)) for name in _TEXTS}


_TEXTS = ("userId", "userName", "operation", "clusterId", "isolationLevel", "userMetadata", "engineInfo")


def _struct(value: Any, type_: pa.StructType) -> dict[str, str | None] | None:
    return {f.name: _text(value.get(f.name)) for f in type_} if isinstance(value, Mapping) else None


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if -1 << 63 <= number < 1 << 63 else None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _map(value: Any) -> list[tuple[str, str | None]] | None:
    return [(str(k), _text(v)) for k, v in value.items()] if isinstance(value, Mapping) else None


_NAMES = pa.list_(pa.string())

DETAIL = pa.schema(
    {
        **dict.fromkeys(("format", "id", "name", "description", "location"), pa.string()),
        **dict.fromkeys(("createdAt", "lastModified"), _MILLISECONDS),
        **dict.fromkeys(("partitionColumns", "clusteringColumns"), _NAMES),
        "numFiles": pa.int64(),
        "sizeInBytes": pa.int64(),
        "properties": _MAP,
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "tableFeatures": _NAMES,
    }
)


def detail(log: DeltaLog, snapshot: Snapshot) -> pa.Table:
    """Describe a table at a version: one row with the columns of :data:`DETAIL`.

    >>> import pyarrow as pa, trilake
    >>> from trilake.storage import open_store
    >>> _ = trilake.write(pa.table({"n": [1]}), "memory://doc-detail", mode="overwrite")
    >>> log = DeltaLog(open_store("memory://doc-detail"))
    >>> row = detail(log, log.snapshot()).to_pylist()[0]
    >>> row["format"], row["numFiles"], row["tableFeatures"]
    ('delta', 1, ['appendOnly', 'invariants'])
    """
    metadata, protocol = snapshot.metadata, snapshot.protocol
    commits = log.commits(snapshot.version - BEFORE, snapshot.version)
    times = log.commit_times(commits, metadata, first=snapshot.version)
    row: dict[str, Any] = {
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": snapshot.uri,
        "createdAt": metadata.created_time,
        "lastModified": times[-1] if times else None,
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": [format_path(c) for c in clustering_columns(snapshot)],
        "numFiles": snapshot.adds.num_rows,
        "sizeInBytes": int(pc.sum(snapshot.adds["size"]).as_py() or 0),
        "properties": list(metadata.configuration.items()),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(features_of(protocol)),
    }
    return pa.Table.from_pylist([row], schema=DETAIL)


def summary(opened: Snapshot | PendingSnapshot) -> str:
    """Describe a version in one line."""
    m = opened.metadata
    columns = ", ".join(f"{f.name}: {f.type}" for f in opened.schema.fields)
    by = f" partitioned by {', '.join(m.partition_columns)}" if m.partition_columns else ""
    files = "very many files" if isinstance(opened, PendingSnapshot) else f"{opened.adds.num_rows} files"
    return f"<Delta table {opened.uri} version {opened.version}, {files}{by}; {columns}>"


def overview(snapshot: Snapshot) -> str:
    """Describe a version as HTML for notebooks: location, size and columns."""
    m, p = snapshot.metadata, snapshot.protocol
    rows = "".join(
        f"<tr><td>{text_of(f.name)}</td><td>{text_of(f.type)}</td>"
        f"<td>{'' if f.nullable else 'not null '}{'partition' if f.name in m.partition_columns else ''}</td></tr>"
        for f in snapshot.schema.fields
    )
    size = pc.sum(snapshot.adds["size"]).as_py() or 0
    return (
        f"<div><b>Delta table</b> <code>{text_of(masked(snapshot.uri))}</code> &middot; version {snapshot.version}"
        " &middot; "
        f"{snapshot.adds.num_rows:,} files &middot; {format_size(size)} &middot; "
        f"protocol {p.min_reader_version}/{p.min_writer_version}"
        f"<table><thead><tr><th>column</th><th>type</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
