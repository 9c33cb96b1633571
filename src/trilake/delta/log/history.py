"""The history of a table: one row per commit, from its ``commitInfo``.

Protocol: *Commit Provenance Information*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from trilake.delta.log.log import BEFORE, DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.errors import InvalidArgumentError

_MAP = pa.map_(pa.string(), pa.string())
JOB = pa.struct([(n, pa.string()) for n in ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")])
NOTEBOOK = pa.struct([("notebookId", pa.string())])

HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("userId", pa.string()),
        ("userName", pa.string()),
        ("operation", pa.string()),
        ("operationParameters", _MAP),
        ("job", JOB),
        ("notebook", NOTEBOOK),
        ("clusterId", pa.string()),
        ("readVersion", pa.int64()),
        ("isolationLevel", pa.string()),
        ("isBlindAppend", pa.bool_()),
        ("operationMetrics", _MAP),
        ("userMetadata", pa.string()),
        ("engineInfo", pa.string()),
    ]
)


def history(log: DeltaLog, snapshot: Head, limit: int | None = None) -> pa.Table:
    """List the commits up to the snapshot's version that are still in the log, newest first, at most ``limit``."""
    start = 0
    if limit is not None:
        count: object = limit
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(f"limit must be a whole number of 0 or more, got {limit!r:.80}")
        start = max(0, snapshot.version + 1 - limit - BEFORE)
    commits = log.commits(start=start, end=snapshot.version)
    first = 0 if limit is None else max(0, len(commits) - limit)
    infos = log.commit_infos(commits[first:])
    times = log.times(commits, snapshot.metadata, infos)
    rows = [_row(v, times[i], infos.get(v) or {}) for i, (v, _) in enumerate(commits) if i >= first]
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
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _map(value: Any) -> list[tuple[str, str | None]] | None:
    return [(str(k), _text(v)) for k, v in value.items()] if isinstance(value, Mapping) else None
