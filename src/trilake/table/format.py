"""``Format``: the interface that each format implements, without Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trilake.common.timestamps import TimestampLike
from trilake.errors import InvalidArgumentError
from trilake.storage.base import Store

if TYPE_CHECKING:
    from trilake.table.conversion import Source, Target, TargetRequest
    from trilake.table.data_files import FileFormat
    from trilake.table.dropping import TableFiles
    from trilake.table.findings import Depth, Finding, Findings, PlannedStep
    from trilake.table.report_facts import Facts
    from trilake.table.results import WriteResult
    from trilake.table.table import FilterLike, Table
    from trilake.table.upkeep import Upkeep


Mode = Literal["error", "append", "overwrite", "ignore"]
_MODES: dict[str, Mode] = {
    "error": "error",
    "errorifexists": "error",
    "default": "error",
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
}


def parse_mode(mode: str) -> Mode:
    """Parse a save mode of trilake or Spark.  Raises ``InvalidArgumentError``."""
    save_mode = _MODES.get(mode.lower())
    if save_mode is None:
        raise InvalidArgumentError(
            f"unknown mode {mode!r}",
            help=f"use one of {', '.join(sorted(set(_MODES.values())))}",
            condition="INVALID_SAVE_MODE",
        )
    return save_mode


@dataclass(frozen=True)
class TableWrite:
    """The arguments of :func:`trilake.write`."""

    mode: Mode
    partition_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Names of passed arguments that need a table with a log.
    log_only: Mapping[str, Any] = field(default_factory=dict)


class Format(ABC):
    """One format of tables."""

    name: ClassVar[str]
    #: Whether opening raises ``TableNotFoundError`` without a table, as cheaply as a check.
    tells_by_opening: ClassVar[bool] = True
    #: Whether rows may lack columns, which are filled with nulls or defaults.
    fills_columns: ClassVar[bool] = False

    @abstractmethod
    def detect(self, store: Store) -> bool:
        """Whether the store's root holds such a table."""

    @abstractmethod
    def open(self, store: Store, version: int | None, timestamp: TimestampLike | None) -> Table:
        """Open the table at the store's root, at a version or timestamp."""

    @abstractmethod
    def write(self, store: Store, data: Any, write: TableWrite) -> WriteResult:
        """Write rows, see :func:`trilake.write`."""

    @abstractmethod
    def store_of(self, table: Table) -> Store:
        """The store of an open table."""

    @abstractmethod
    def verify(self, store: Store, version: int | None, depth: Depth, sample: int | None, limit: int) -> Findings:
        """Verify a table, see :func:`trilake.verify`."""

    def repair_steps(self) -> tuple[str, ...]:
        """The codes of the repair steps, in order."""
        return ()

    def plan_repair(self, store: Store, code: str, findings: Sequence[Finding]) -> list[PlannedStep]:
        """The steps of one kind for some findings."""
        raise InvalidArgumentError(f"{self.name} tables have no repair step {code}", file=store.uri)

    @abstractmethod
    def report_facts(self, table: Table) -> Facts:
        """The facts of an open table for a report."""

    @abstractmethod
    def source(self, table: Table, columns: list[str] | None, filter: FilterLike | None) -> Source:
        """The rows of an open table for a conversion, see :func:`trilake.convert`."""

    @abstractmethod
    def target(self, store: Store, source: Source, request: TargetRequest, exists: bool) -> Target:
        """The target of a conversion, at a location with or without a table."""

    @abstractmethod
    def upkeep(self) -> Upkeep:
        """The maintenance interface for the command line."""

    @abstractmethod
    def table_files(self, store: Store) -> TableFiles:
        """The files that dropping the table at the store's root deletes, see :func:`trilake.drop`."""

    def data_files(self) -> FileFormat | None:
        """The format of data files inside tables of other formats, or ``None``."""
        return None

    def reject_log_only(self, write: TableWrite) -> None:
        """Raise ``InvalidArgumentError`` for arguments that need a log."""
        if write.log_only:
            raise InvalidArgumentError(
                f"{', '.join(write.log_only)} needs a table with a log, but {self.name} tables have none",
                format=self.name,
                help='leave it out, or write format="delta"',
            )
