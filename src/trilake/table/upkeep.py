"""``Upkeep``: the commands that each format implements for the command line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trilake.table.table import Table

#: Starts Spark, and returns a function that runs a command's work in Spark tasks.
OnSpark = Callable[[], Any]


@dataclass(frozen=True)
class OptimizeOptions:
    """The options of ``trilake optimize``, with their defaults."""

    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    target_size: int | None = None
    target_rows: int | None = None
    full: bool = False
    purge: bool = False
    on_spark: OnSpark | None = None


@dataclass(frozen=True)
class VacuumOptions:
    """The options of ``trilake vacuum``."""

    retention_hours: float | None = None
    lite: bool = False
    enforce_retention: bool = True
    on_spark: OnSpark | None = None


@dataclass(frozen=True)
class Unneeded:
    """The files that a vacuum lists or deleted.

    ``files`` has the columns ``path``, below the table, and ``size`` in bytes.  ``foreign`` are the paths of files
    that do not belong to the table and stay.  ``version`` is the committed version, if any.
    """

    files: pa.Table
    foreign: pa.ChunkedArray
    version: int | None = None

    @property
    def size(self) -> int:
        return int(pc.sum(self.files["size"]).as_py() or 0)


class Upkeep(ABC):
    """A format's commands for the command line."""

    @abstractmethod
    def facts(self, table: Table) -> dict[str, Any]:
        """Facts in addition to :func:`common_facts`, which come first; times are Arrow scalars."""

    def columns(self, table: Table) -> Iterator[dict[str, Any]]:
        """The columns: ``name``, ``type`` as the format calls it, ``nullable``, ``role``, ``comment``, ``metadata``."""
        for field in table.schema:
            metadata = {
                k.decode(errors="replace"): v.decode(errors="replace") for k, v in (field.metadata or {}).items()
            }
            facts = {"name": field.name, "type": str(field.type), "nullable": field.nullable, "role": None}
            yield {**facts, "comment": metadata.get("comment"), "metadata": metadata}

    def log(self, table: Table, start: int | None, end: int | None, limit: int) -> Iterator[dict[str, Any]]:
        """The versions from ``start`` to ``end``, newest first; at most ``limit``, or all for 0.

        Each has ``version``, ``file`` and ``actions``.
        """
        raise not_for(table, "log", "run `trilake files` to list their files")

    def changes(
        self, table: Table, start: int | str, end: int | str | None, columns: Sequence[str] | None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows that the versions, or times, from ``start`` to ``end`` inserted, updated and deleted."""
        raise not_for(table, "change data feed", "trilake diff compares two versions")

    def optimize(self, table: Table, options: OptimizeOptions) -> dict[str, Any]:
        """Rewrite rows into fewer, larger or clustered files; return metrics."""
        raise not_for(table, "files to optimize", "write the rows again: trilake convert")

    def unneeded(self, table: Table, options: VacuumOptions) -> Unneeded:
        """The files that a vacuum would delete."""
        raise not_for(table, "versions, and so nothing to vacuum", "each write removes files of failed writes")

    def vacuum(self, table: Table, options: VacuumOptions) -> Unneeded:
        """Delete these files."""
        return self.unneeded(table, options)

    def restore(
        self, table: Table, version: int | None, timestamp: str | None, *, ignore_missing: bool
    ) -> dict[str, Any]:
        """Restore an older version, as a new one; return metrics."""
        raise not_for(table, "versions", "nothing can be restored")


def common_facts(table: Table, timestamp: Any, rows: int | None, files: pa.Table) -> dict[str, Any]:
    """The facts of a table of any format; ``rows`` is ``None`` if the metadata has no count."""
    return {
        "uri": table.uri,
        "format": table.format,
        "version": table.version,
        "timestamp": timestamp,
        "rows": rows,
        "files": files.num_rows,
        "size": int(pc.sum(files["size"]).as_py() or 0),
        "columns": len(table.schema),
        "partition_columns": [],
    }


def not_for(table: Table, what: str, help: str) -> InvalidArgumentError:
    """The error for a command that the format does not support."""
    return InvalidArgumentError(f"{table.format.title()} tables have no {what}", help=help, file=table.uri)


def reject(table: Table, options: dict[str, Any]) -> None:
    """Reject options that have no effect for the format; keys are their command line names."""
    for name, value in options.items():
        if value:
            raise not_for(table, name, "leave it out")
