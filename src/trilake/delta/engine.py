"""``Engine``: what a Delta table needs of the world besides its store; built once, passed in, carried along.

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
from trilake.storage.base import Store

#: ``(index of the first row in the file, rows)``
FileBatches = Iterator[tuple[int, pa.RecordBatch]]


class RowFile(Protocol):
    """One file of a format other than Parquet, while it is being written."""

    @property
    def size(self) -> int:
        """About how many bytes have been written."""

    def write(self, batch: pa.Table) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file: it appears whole."""

    def discard(self) -> None:
        """Give it up: nothing appears."""


@dataclass(frozen=True)
class FileFormat:
    """How data files of one format are read and written; ``name`` is that of ``metaData.format.provider``.

    ``read`` gets a store, a key, the :class:`~trilake.delta.scan.scan.ReadPlan` and whether threads may be used.
    ``write`` gets a store, a key, the schema of the rows and the :class:`~trilake.delta.files.file_plan.FilePlan`.
    ``check`` raises ``SchemaMismatchError`` for columns that the format does not have.  All are functions of modules,
    so that a plan can travel to the tasks of a cluster.
    """

    name: str
    read: Callable[[Store, str, Any, bool], FileBatches]
    write: Callable[[Store, str, pa.Schema, Any], RowFile]
    check: Callable[[pa.Schema], None] | None = None


#: What follows a commit: called with a :class:`~trilake.delta.commit.hooks.CommitEvent`; gives the snapshot of the
#: version where it made one.
CommitHook = Callable[[Any], Any]


class Jobs(Protocol):
    """Runs work on the files of a large table in other processes; functions and tasks travel to them.

    Raises the error of ours that a task raised, and ``WriteFailedError`` where a job failed otherwise.
    """

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        """What the function makes of each task, which is little, in any order.  A task may be done more than once."""

    def repeated(self, texts: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        """One of the texts that are there more than once among those of all tasks."""


@dataclass(frozen=True)
class Engine:
    """Formats of data files besides those of the Delta room, what follows a commit, and clock, ids and waiting.

    ``hooks`` run in their order after a commit is in the log.  An engine without them (``None``) reads and plans; a
    commit through it is refused, because it would leave out what the table asks for.  ``jobs`` says who works on a
    table of so many files in a store; ``None`` for this process.

    >>> Engine().format("lance") is None
    True
    """

    formats: tuple[FileFormat, ...] = ()
    hooks: tuple[CommitHook, ...] | None = None
    runtime: Runtime = SYSTEM_RUNTIME
    jobs: Callable[[Store, int], Jobs | None] | None = None

    def format(self, name: str) -> FileFormat | None:
        """The format of that name, where this engine has it."""
        return next((f for f in self.formats if f.name == name), None)

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
                help="pass the engine that trilake.engine.standard_engine() makes",
                file=uri,
            )
        return self.hooks
