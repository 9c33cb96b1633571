"""Helpers to read a stream of a table in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trilake.delta.log.log import DeltaLog
from trilake.delta.scan.scan import FileTask
from trilake.delta.stream.offset import Limit, StreamOffset
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream

ALL = StreamOptions(max_files=None)


def reading(log: DeltaLog, *columns: str) -> Reading:
    head = log.head()
    return Reading(head.metadata, head.version, columns or None)


def stream(log: DeltaLog, read: Reading | None = None, **options: Any) -> DeltaStream:
    return DeltaStream(log, read or reading(log), replace(ALL, **options))


def paths(result: DeltaStream, start: StreamOffset, end: StreamOffset) -> list[str]:
    return [t.path for t in result.batch(start, end).tasks if isinstance(t, FileTask)]


def everything(result: DeltaStream, start: StreamOffset | None = None) -> list[str]:
    """Read everything, one batch per file."""
    start, out = start or result.initial(), []
    while (end := result.latest(start, Limit(1))) != start:
        out += paths(result, start, end)
        start = end
    return out
