"""Traces for the Chrome trace viewer.

A trace has the log records of this package as instant events, but no timings.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from typing import Any

from trilake.errors import InvalidArgumentError

_LEVELS = {"trace": logging.DEBUG} | {n: getattr(logging, n.upper()) for n in ("debug", "info", "warn", "error")}


class _Recorder(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.events: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        event = {"name": record.getMessage(), "cat": record.name, "ph": "i", "s": "t", "ts": record.created * 1e6}
        self.events.append({**event, "pid": os.getpid(), "tid": threading.get_native_id()})


class TraceGuard:
    """A running trace; :meth:`finish_tracing` writes it once."""

    def __init__(self, file: str, recorder: _Recorder) -> None:
        self._file, self._recorder, self._done = file, recorder, False

    def finish_tracing(self) -> None:
        """Write the file."""
        if not self._done:
            self._done = True
            logging.getLogger("trilake").removeHandler(self._recorder)
            with open(self._file, "w") as out:
                json.dump(self._recorder.events, out)


def trace_to_chrome(*, file: str | None = None, level: str | None = None) -> TraceGuard:
    """Start a trace, which is written when the process ends.

    Parameters
    ----------
    file: output file, by default ``trace-<microseconds>.json`` in the working directory.
    level: ``trace``, ``debug``, ``info`` (default), ``warn`` or ``error``.

    Raises ``InvalidArgumentError`` for another level.
    """
    log_level = _LEVELS.get(level or "info")
    if log_level is None:
        raise InvalidArgumentError(f"unknown level {level!r}", help=f"levels are {', '.join(_LEVELS)}")
    recorder = _Recorder(log_level)
    logging.getLogger("trilake").addHandler(recorder)
    guard = TraceGuard(file or f"./trace-{time.time_ns() // 1000}.json", recorder)
    atexit.register(guard.finish_tracing)
    return guard
