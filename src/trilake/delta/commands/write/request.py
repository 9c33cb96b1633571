"""The caller's request for a write: mode, what it replaces, and file options; and the files of a failed job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trilake.delta.commands.write.create import TableDescription
from trilake.delta.files.file_plan import parse_compression
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.property_values import IsolationLevel, is_on
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.type_widening import WideningMode
from trilake.errors import InvalidArgumentError
from trilake.table.format import Mode

#: Table properties that enable optimized writes.
_OPTIMIZED_WRITES = ("delta.autoOptimize", "delta.autoOptimize.optimizeWrite")


@dataclass(frozen=True)
class ReplaceMatches:
    """An overwrite that replaces the rows with a match among the new rows; without new rows, it replaces none.

    A match has equal values in ``columns``, none of them null; or it satisfies ``condition``, SQL over both sides, in
    which ``target_alias`` is the table's name.
    """

    columns: tuple[str, ...] = ()
    condition: str = ""
    target_alias: str | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """Its parameters in the history."""
        if self.columns:
            return {"replaceUsingCols": f"({', '.join(self.columns)})"}
        return {"replaceOnCond": self.condition}


@dataclass(frozen=True)
class WriteRequest:
    """The caller's request; see :func:`trilake.write`.

    ``txn`` is an application id and its transaction version: if the table has that version, or a newer one, it stays
    unchanged.
    """

    mode: Mode
    schema: StructType
    partition_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] | None = None
    replace_where: str | None = None
    #: Whether new rows must match ``replace_where``, and whether it may name data columns.
    replace_where_checked: bool = True
    replace_where_data: bool = True
    replace_matches: ReplaceMatches | None = None
    partition_overwrite: Literal["static", "dynamic"] = "static"
    schema_mode: Literal["merge", "overwrite"] | None = None
    #: Which types ``schema_mode="merge"`` may widen.
    widening: WideningMode = "always"
    txn: tuple[str, int] | None = None
    isolation: IsolationLevel | None = None
    user_metadata: str | None = None
    operation: str = "WRITE"
    #: The name of the metric with the number of new files.
    files_metric: str = "numFiles"
    #: The operation parameters of the commit; by default mode, partitioning and predicate.
    parameters: Mapping[str, Any] | None = None
    #: Whether a catalog manages the table's files, for a write that creates or replaces a table by name.  The commit
    #: then describes the table, unless ``parameters`` does.
    managed: bool | None = None
    #: Whether this is an overwrite by ``saveAsTable``, which the commit records.
    save_as_table: bool = False
    #: For CREATE TABLE AS SELECT: the description, except columns, of the table to create or replace from the rows.
    description: TableDescription | None = None
    #: Format of the data files; by default the table's own, and Parquet for a new table.
    data_format: str | None = None
    #: Clustering columns of a new table; an existing table must have the same.
    cluster_by: tuple[str, ...] | None = None
    #: Default properties of a new table.
    default_properties: Mapping[str, str] | None = None
    #: Whether rows may lack partition columns, which are then null, and have only partition columns: SQL's INSERT.
    fills_absent: bool = False
    #: Whether an overwrite of a partitioned table is dynamic by default.
    prefer_dynamic: bool = False
    #: Whether to shuffle rows by partition first, for fewer and larger files; ``None`` follows the table.
    optimize_write: bool | None = None
    #: The most rows per data file; ``None`` for no limit.
    max_records_per_file: int | None = None
    #: Parquet compression, see :func:`~trilake.delta.files.file_plan.parse_compression`; ``None``: snappy.
    compression: str | None = None
    #: ``False`` for rows that are only moved from other files, which the change feed and streams ignore.
    data_change: bool = True
    #: Whether the table must exist; prevents a dropped table from being created again.
    must_exist: bool = False

    def __post_init__(self) -> None:
        for name, value, choices_allowed in (
            ("partition_overwrite", self.partition_overwrite, ("static", "dynamic")),
            ("schema_mode", self.schema_mode, (None, "merge", "overwrite")),
        ):
            if value not in choices_allowed:
                choices = ", ".join(map(repr, choices_allowed[:-1]))
                raise InvalidArgumentError(
                    f"{name} must be {choices} or {choices_allowed[-1]!r}, got {value!r}",
                    condition="DELTA_ILLEGAL_OPTION",
                )
        if self.txn is not None:
            object.__setattr__(self, "txn", _transaction_id(self.txn))
        dynamic = self.partition_overwrite == "dynamic"
        for name, given in (("partition_overwrite", dynamic), ("replace_where", self.replace_where is not None)):
            if given and self.mode != "overwrite":
                raise InvalidArgumentError(
                    f"{name} needs mode='overwrite', got mode {self.mode!r}",
                    help="leave it out, or pass mode='overwrite'",
                    condition="DELTA_ILLEGAL_USAGE",
                )
        if self.schema_mode == "overwrite" and (self.mode != "overwrite" or self.replace_where is not None):
            raise InvalidArgumentError(
                "schema_mode='overwrite' needs mode='overwrite' without replace_where",
                help="use schema_mode='merge' to add columns",
                condition="DELTA_ILLEGAL_USAGE",
            )

    def files_limits(self, provider: str) -> dict[str, Any]:
        """The limits per file, as fields of the plan.  Raises ``InvalidArgumentError``."""
        most: object = self.max_records_per_file
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidArgumentError(f"maxRecordsPerFile must be a number of rows above 0, got {most}")
        limits: dict[str, Any] = {"max_records": most}
        if self.compression is not None:
            if provider != "parquet":
                raise InvalidArgumentError(
                    f"compression applies to Parquet files, but the table's files are {provider}",
                    help="leave compression out",
                )
            limits["compression"] = parse_compression(self.compression)
        return limits

    def optimizes(self, configuration: Mapping[str, str]) -> bool:
        """Whether rows are shuffled by partition before they are written to a table with these properties."""
        if self.optimize_write is not None:
            return self.optimize_write
        return any(is_on(configuration, k) for k in _OPTIMIZED_WRITES)

    @property
    def replaces_some(self) -> bool:
        """Whether an overwrite replaces the rows that match a condition, rather than all rows or partitions."""
        return self.replace_where is not None or self.replace_matches is not None

    @property
    def replaces(self) -> bool:
        """Whether the write may remove existing files."""
        return self.mode == "overwrite"


def _transaction_id(txn: object) -> tuple[str, int]:
    if isinstance(txn, tuple | list) and len(txn) == 2:
        app_id, version = txn
        whole = isinstance(version, int | np.integer) and not isinstance(version, bool | np.bool_)
        if isinstance(app_id, str) and app_id and whole and abs(int(version)) < 1 << 63:
            return app_id, int(version)
    raise InvalidArgumentError(
        f"txn must be an application id and a version, got {txn!r:.80}", help="pass a pair such as ('nightly-load', 7)"
    )


def files_of_job(log: DeltaLog, job_id: str) -> list[str]:
    """List the data files of a write job in the table's folder, even if no commit names them."""
    return [o.key for o in log.store.list() if job_id in o.key]


def left_behind(log: DeltaLog, job_id: str) -> str:
    """The end of a sentence that names the files of a failed job."""
    files = files_of_job(log, job_id)
    if not files:
        return "no files remain"
    names = ", ".join(files[:3]) + (", ..." if len(files) > 3 else "")
    return f"{len(files)} files remain, invisible to readers: {names}"
