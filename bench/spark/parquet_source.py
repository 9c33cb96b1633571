"""Parquet through Spark's Python data sources, for comparison with formats that need them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


class ParquetSource(DataSource):
    """Parquet files as a Python data source: a task per file, batches of pyarrow's reader, and a given schema.

    The option ``batch`` is the number of rows of a batch.
    """

    @classmethod
    def name(cls) -> str:
        return "bench-parquet"

    def schema(self) -> StructType:
        return from_arrow_schema(pq.read_schema(next(Path(self.options["path"]).glob("*.parquet"))))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ParquetReader(self.options["path"], schema.names, int(self.options.get("batch", 1 << 16)))


@dataclass
class _File(InputPartition):
    path: str


class _ParquetReader(DataSourceReader):
    def __init__(self, folder: str, columns: list[str], batch: int) -> None:
        self.folder, self.columns, self.batch = folder, columns, batch

    def partitions(self) -> list[InputPartition]:
        return [_File(str(path)) for path in sorted(Path(self.folder).glob("*.parquet"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _File)
        with pq.ParquetFile(partition.path) as file:
            yield from file.iter_batches(self.batch, columns=self.columns, use_threads=False)
