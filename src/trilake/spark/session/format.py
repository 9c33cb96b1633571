"""``SparkFormat``: what generic code may ask of a format in a Spark session; a subclass for each, in its own room."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from trilake.table.format import TableWrite
from trilake.table.registry import row_named
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table


class SparkFormat(ABC):
    """One format of tables, for Spark."""

    name: ClassVar[str]

    @abstractmethod
    def read(
        self,
        spark: SparkSession,
        table: Table,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        options: Mapping[str, str] | None = None,
        newest: bool = False,
    ) -> DataFrame:
        """An open table as a frame, see :func:`trilake.read`; ``newest`` says that no version was named."""

    @abstractmethod
    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        """Write the rows of a frame, see :func:`trilake.write`."""


def spark_format_named(name: str) -> SparkFormat:
    """The format of that name.  Raises ``InvalidArgumentError``."""
    format: Any = row_named(name).load_spark()
    assert isinstance(format, SparkFormat)
    return format
