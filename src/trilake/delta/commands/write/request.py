"""What a caller asks of a write: its mode, what it replaces, and how the files are to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trilake.delta.commands.write.create import TableDescription
from trilake.delta.files.file_plan import parse_compression
from trilake.delta.protocol.isolation import IsolationLevel
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import StructType
from trilake.errors import InvalidArgumentError
from trilake.table.format import Mode

#: Properties of tables whose writes are optimized, each of them for itself.
_OPTIMIZED_WRITES = ("delta.autoOptimize", "delta.autoOptimize.optimizeWrite")


@dataclass(frozen=True)
class WriteRequest:
    """What the caller asks for; see :func:`trilake.write`.

    ``txn`` is an application id and the version of it that this write stands for: a table that has that version, or a
    newer one, is left as it is.
    """

    mode: Mode
    schema: StructType
    partition_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] | None = None
    replace_where: str | None = None
    #: Whether the new rows must match ``replace_where``, and whether it may name columns of data.
    replace_where_checked: bool = True
    replace_where_data: bool = True
    partition_overwrite: Literal["static", "dynamic"] = "static"
    schema_mode: Literal["merge", "overwrite"] | None = None
    txn: tuple[str, int] | None = None
    isolation: IsolationLevel | None = None
    user_metadata: str | None = None
    operation: str = "WRITE"
    #: What the metrics of the commit call the number of new files.
    files_metric: str = "numFiles"
    #: What the commit says of the operation; ``None`` for mode, partitioning and predicate.
    parameters: Mapping[str, Any] | None = None
    #: Of a write that makes or replaces a table by its name: whether a catalogue keeps its files.  Its commit says what
    #: the table is, where ``parameters`` do not.
    managed: bool | None = None
    #: Whether it is an overwrite by ``saveAsTable``, whose commit says so.
    save_as_table: bool = False
    #: What the table is to be that the rows make, or take the place of, except for its columns: CREATE TABLE AS SELECT.
    description: TableDescription | None = None
    #: Format of the data files; ``None`` for the table's own, and Parquet for a new table.
    data_format: str | None = None
    #: Columns that rows of a new table are kept near each other by; an existing table must have the same.
    cluster_by: tuple[str, ...] | None = None
    #: Properties of a new table that the ones asked for decide over.
    default_properties: Mapping[str, str] | None = None
    #: Whether an overwrite of a partitioned table is dynamic where nothing else says what it replaces.
    prefer_dynamic: bool = False
    #: Whether rows are brought together by partition first, for fewer and larger files; ``None``: as the table says.
    optimize_write: bool | None = None
    #: Most rows of a data file; ``None`` for no limit but the size.
    max_records_per_file: int | None = None
    #: How Parquet files are compressed, see :func:`~trilake.delta.files.file_plan.parse_compression`; ``None``: snappy.
    compression: str | None = None
    #: ``False`` for rows that the table has already, in other files: who follows its changes sees nothing of them.
    data_change: bool = True
    #: Whether the table must be there: one that was dropped is not made again.
    must_exist: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("partition_overwrite", self.partition_overwrite, ("static", "dynamic")),
            ("schema_mode", self.schema_mode, (None, "merge", "overwrite")),
        ):
            if value not in allowed:
                shown = " or ".join(map(str, allowed))
                raise InvalidArgumentError(
                    f"{name} is {value!r}", help=f"it is {shown}", condition="DELTA_ILLEGAL_OPTION"
                )
        if self.txn is not None:
            object.__setattr__(self, "txn", _transaction_id(self.txn))
        dynamic = self.partition_overwrite == "dynamic"
        if dynamic and self.mode != "overwrite":
            raise InvalidArgumentError(
                f"partition_overwrite needs mode='overwrite', got mode {self.mode!r}",
                help="leave it out, or pass mode='overwrite'",
                condition="DELTA_ILLEGAL_USAGE",
            )
        if self.replace_where is not None and self.mode != "overwrite":
            raise InvalidArgumentError(
                "replace_where needs mode='overwrite'",
                condition="DELTA_ILLEGAL_USAGE",
            )
        if self.schema_mode == "overwrite" and (self.mode != "overwrite" or self.replace_where is not None):
            raise InvalidArgumentError(
                "schema_mode='overwrite' needs mode='overwrite' without replace_where",
                help="use schema_mode='merge' to add columns",
                condition="DELTA_ILLEGAL_USAGE",
            )

    def files_limits(self, provider: str) -> dict[str, Any]:
        """What the request says of single files, as fields of their plan.  Raises ``InvalidArgumentError``."""
        most: object = self.max_records_per_file
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidArgumentError(
                f"maxRecordsPerFile is {self.max_records_per_file}", help="it must be a number of rows above 0"
            )
        limits: dict[str, Any] = {"max_records": self.max_records_per_file}
        if self.compression is not None:
            if provider != "parquet":
                raise InvalidArgumentError(
                    f"compression is said for Parquet files, and the table's files are {provider}",
                    help="leave compression out",
                )
            limits["compression"] = parse_compression(self.compression)
        return limits

    def optimizes(self, configuration: Mapping[str, str]) -> bool:
        """Whether rows are brought together by partition before they are written to a table with these properties."""
        if self.optimize_write is not None:
            return self.optimize_write
        return any(is_on(configuration, k) for k in _OPTIMIZED_WRITES)

    @property
    def replaces(self) -> bool:
        """Whether the write may remove files that are there."""
        return self.mode == "overwrite"


def _transaction_id(txn: object) -> tuple[str, int]:
    """An application's id and a version of it, as the log keeps them; anything else no engine could read there."""
    if isinstance(txn, tuple | list) and len(txn) == 2:
        app_id, version = txn
        whole = isinstance(version, int | np.integer) and not isinstance(version, bool | np.bool_)
        if isinstance(app_id, str) and app_id and whole and abs(int(version)) < 1 << 63:
            return app_id, int(version)
    raise InvalidArgumentError(
        f"txn is {txn!r:.80}", help="pass an application id and a version, such as ('nightly-load', 7)"
    )
