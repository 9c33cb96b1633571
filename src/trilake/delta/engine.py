"""``Engine``: what a Delta table needs of the world apart from its store; built once, passed in, carried along.

A :class:`~trilake.delta.log.log.DeltaLog` has one, its snapshots and the plans made of them carry it, and so do the
tasks that a cluster runs.  Nothing about a table depends on what else was imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import InvalidArgumentError
from trilake.expr.terms.engine import Query, query
from trilake.storage.base import Store
from trilake.table.data_files import FileFormat
from trilake.table.registry import FormatRow

#: What follows a commit: called with a :class:`~trilake.delta.commit.hooks.CommitEvent`; gives the snapshot of the
#: version where it made one.
CommitHook = Callable[[Any], Any]


class Jobs(Protocol):
    """Runs work on the files of a large table in other processes; functions and tasks travel to them.

    Raises the error of trilake that a task raised, and ``WriteFailedError`` where a job failed otherwise.
    """

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        """What the function makes of each task, which is little, in any order.  A task may be done more than once."""

    def repeated(self, texts: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        """One of the strings that are there more than once among those of all tasks."""


@dataclass(frozen=True)
class Engine:
    """Formats of data files in addition to those of the Delta room, what follows a commit, clock, ids and waiting,
    and the evaluator of SQL over Arrow tables.

    ``hooks`` run in their order after a commit is in the log.  An engine without them (``None``) reads and plans; a
    commit through it is refused, because it would leave out what the table asks for.  ``jobs`` says who works on a
    table of so many files in a store; ``None`` for this process.

    >>> Engine().format("orc") is None
    True
    """

    formats: tuple[FormatRow, ...] = ()
    hooks: tuple[CommitHook, ...] | None = None
    runtime: Runtime = SYSTEM_RUNTIME
    jobs: Callable[[Store, int], Jobs | None] | None = None
    query: Query = query

    def format(self, name: str) -> FileFormat | None:
        """The format of that name, where this engine has it."""
        return next((f.load().data_files() for f in self.formats if f.name == name), None)

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the formats that data files can be written in."""
        return ("parquet", *(f.name for f in self.formats))

    def for_tasks(self) -> Engine:
        """What tasks need of it: they write files and never commit."""
        return replace(self, hooks=None, jobs=None)

    def jobs_for(self, store: Store, files: int) -> Jobs | None:
        """Who works on a table of so many files, where that is not this process."""
        return None if self.jobs is None else self.jobs(store, files)

    def commit_hooks(self, uri: str) -> tuple[CommitHook, ...]:
        """The hooks.  Raises ``InvalidArgumentError`` for an engine without."""
        if self.hooks is None:
            raise InvalidArgumentError(
                "the log was opened without an engine that commits: checkpoints, compaction and manifests would be"
                " left out",
                help="pass the engine that trilake.delta.standard.standard_engine() makes",
                file=uri,
            )
        return self.hooks
