"""``Engine``: the environment of a Delta table, except its store; built once and passed in.

A :class:`~trilake.delta.log.log.DeltaLog` has one; its snapshots, plans and tasks carry it.  No behaviour depends on
which modules are imported.
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

#: A post-commit hook: called with a :class:`~trilake.delta.commit.transaction.CommitEvent`.
CommitHook = Callable[[Any], None]


class Jobs(Protocol):
    """Runs work on the files of a large table in other processes; functions and tasks are pickled."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        """Call the function for each task, in any order; return the small results.  A task may run more than once."""

    def repeated(self, strings: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        """A string that occurs more than once among the strings of all tasks; ``None`` if there is none."""


@dataclass(frozen=True)
class Engine:
    """The formats of data files, post-commit hooks, clock, ids and waiting, and the evaluator of SQL over Arrow tables.

    ``hooks`` run in order after a commit.  An engine without hooks (``None``) only reads and plans, and rejects
    commits. ``jobs`` chooses where to process a table with a given number of files; ``None`` means this process.

    >>> Engine().format("orc") is None
    True
    """

    formats: tuple[FormatRow, ...] = ()
    hooks: tuple[CommitHook, ...] | None = None
    runtime: Runtime = SYSTEM_RUNTIME
    jobs: Callable[[Store, int], Jobs | None] | None = None
    query: Query = query

    def format(self, name: str) -> FileFormat | None:
        """The format with this name, if the engine has it."""
        return next((f.load().data_files() for f in self.formats if f.name == name), None)

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the formats in which data files can be written."""
        return ("parquet", *(f.name for f in self.formats))

    def for_tasks(self) -> Engine:
        """The engine for tasks, which write files and never commit."""
        return replace(self, hooks=None, jobs=None)

    def jobs_for(self, store: Store, files: int) -> Jobs | None:
        """The jobs for a table with this many files; ``None`` for this process."""
        return None if self.jobs is None else self.jobs(store, files)

    def commit_hooks(self, uri: str) -> tuple[CommitHook, ...]:
        """The hooks.  Raises ``InvalidArgumentError`` if the engine has none."""
        if self.hooks is None:
            raise InvalidArgumentError(
                "the log was opened without an engine that commits: checkpoints, compaction and manifests would be"
                " left out",
                help="pass the engine that trilake.delta.standard.standard_engine() returns",
                file=uri,
            )
        return self.hooks
