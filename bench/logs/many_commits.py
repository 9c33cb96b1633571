"""A Delta log of a hundred thousand commits with a checkpoint every hundred: opening, history, changes.

Every commit adds a file and removes one, so that the table always has a hundred files, and only the length of the log
matters.  Commit times are in-commit timestamps or file times.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import deltalake
import pyarrow as pa

import trilake
from bench.harness import Benchmark, Contender, data
from bench.logs.delta_logs import append_commit, busy_table, commit_time
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream
from trilake.delta.table import ArrowDeltaTable

COMMITS, INTERVAL = 100_000, 100
_LAST = COMMITS - 1
_MIDDLE = COMMITS // 2 + 45
_TIME = dt.datetime.fromtimestamp(commit_time(_MIDDLE) / 1000 + 1, dt.UTC)


def table(*, stated: bool) -> Path:
    """The table, with or without in-commit timestamps."""
    build = partial(busy_table, commits=COMMITS, interval=INTERVAL, stated=stated)
    return data(f"delta-busy-{COMMITS}-{stated}", build)


def _ours(stated: bool, version: int | None = None, timestamp: dt.datetime | None = None) -> ArrowDeltaTable:
    return trilake.open(table(stated=stated), format="delta", version=version, timestamp=timestamp)


@lru_cache(maxsize=2)
def _opened(stated: bool) -> ArrowDeltaTable:
    return _ours(stated)


def _theirs(stated: bool, version: int | dt.datetime | None = None) -> deltalake.DeltaTable:
    opened = deltalake.DeltaTable(str(table(stated=stated)))
    if version is not None:
        opened.load_as_version(version)
    return opened


@lru_cache(maxsize=2)
def _their_opened(stated: bool) -> deltalake.DeltaTable:
    return _theirs(stated)


def _their_refresh(stated: bool) -> int:
    opened = _their_opened(stated)
    opened.update_incremental()
    return opened.version()


def _their_changes(stated: bool) -> int:
    return int(pa.table(_theirs(stated).load_cdf(starting_version=_LAST - 9)).num_rows)


@lru_cache(maxsize=2)
def _tail(stated: bool) -> DeltaStream:
    log = _opened(stated).log
    head = log.head()
    stream = DeltaStream(
        log, Reading(head.metadata, head.version), StreamOptions(starting_version="latest", skip_change_commits=True)
    )
    stream.latest(stream.initial())
    return stream


def _next_batch(stated: bool) -> int:
    """The batch of a commit since the last poll of the stream."""
    stream = _tail(stated)
    place = stream.initial()
    return len(stream.batch(place, stream.latest(place)).tasks)


def _one_more(stated: bool) -> None:
    _without_more(stated)
    _tail.cache_clear()
    _tail(stated)
    append_commit(table(stated=stated), COMMITS)


def _without_more(stated: bool) -> None:
    (table(stated=stated) / "_delta_log" / f"{COMMITS:020d}.json").unlink(missing_ok=True)


def _cleanup(stated: bool) -> int | None:
    log = _opened(stated).log
    age = SYSTEM_RUNTIME.clock_ms() - commit_time(_MIDDLE)
    return cleanup_log(log, SYSTEM_RUNTIME, dry_run=True, retention_ms=age).oldest_version


_JOBS: dict[str, tuple[str, Callable[[bool], object], Callable[[bool], object] | None]] = {
    "open": ("open", lambda s: _ours(s).version, lambda s: _theirs(s).version()),
    "refresh": ("refresh, nothing new", lambda s: _opened(s).refresh().version, _their_refresh),
    "history": (
        "the last ten of the history",
        lambda s: _opened(s).history(10).num_rows,
        lambda s: len(_their_opened(s).history(10)),
    ),
    "version": (
        "open a version of the middle",
        lambda s: _ours(s, version=_MIDDLE).version,
        lambda s: _theirs(s, _MIDDLE).version(),
    ),
    "timestamp": (
        "open a time of the middle",
        lambda s: _ours(s, timestamp=_TIME).version,
        lambda s: _theirs(s, _TIME).version(),
    ),
    "changes": ("changes of the last ten versions", lambda s: _opened(s).changes(_LAST - 9).num_rows, _their_changes),
    "tail": ("a stream's batch of one new commit", _next_batch, None),
    "cleanup": ("log cleanup of half the log, dry run", _cleanup, None),
}


def benchmarks() -> Iterator[Benchmark]:
    """Each job, with in-commit timestamps and file times."""
    for job, (title, ours, theirs) in _JOBS.items():
        for stated in (True, False):
            contenders = [Contender("trilake", partial(ours, stated))]
            if job == "tail":
                contenders = [Contender("trilake", partial(ours, stated), partial(_one_more, stated))]
            if theirs is not None:
                contenders.append(Contender("deltalake", partial(theirs, stated)))
            yield Benchmark(
                f"{job}-{'stated' if stated else 'files'}",
                f"{title}, {COMMITS:,} commits, times {'in commits' if stated else 'of files'}",
                contenders,
                baseline=contenders[-1].name,
                setup=partial(_without_more, stated),
                rounds=5,
            )
