"""The hidden column ``_metadata`` of tables with row tracking: Spark's fields, and row IDs and commit versions.
DataFrames without files have it, too.

Spark's scans cannot add fields to ``_metadata``.  So the DataFrame hides a regular column of that name, which has
Spark's fields and then ``row_id``, ``row_commit_version``, ``base_row_id`` and ``default_row_commit_version``.

The ID of a row that was moved is stored in its file.  For other rows, it is the file's base row ID plus the row's
position.  Protocol: *Row Tracking*, "Reader Requirements".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.spark.scan.partitions import attached
from trilake.spark.session.internals import METADATA

#: The fields of that column for Parquet files in Spark.
_FIELDS = {
    "file_path": "STRING",
    "file_name": "STRING",
    "file_size": "BIGINT",
    "file_block_start": "BIGINT",
    "file_block_length": "BIGINT",
    "file_modification_time": "TIMESTAMP",
    "row_index": "BIGINT",
}
#: Columns of a scan of tracked rows that hold values from the log.
_BASE, _VERSION = "__trilake_base_row_id", "__trilake_commit_version"


@dataclass(frozen=True)
class TrackedRows:
    """Row tracking facts by file: the ID of its first row and its default commit version, and the columns of the read
    schema with the IDs and versions of moved rows, if any."""

    base_row_ids: pa.ChunkedArray
    commit_versions: pa.ChunkedArray
    id_column: str | None
    version_column: str | None

    @property
    def nbytes(self) -> int:
        return int(self.base_row_ids.nbytes + self.commit_versions.nbytes)


def has_metadata(df: DataFrame) -> bool:
    """Whether a scan's hidden column is accessible: no column of the table has its name."""
    return METADATA not in (name.lower() for name in df.columns)


def with_origins(df: DataFrame, rows: TrackedRows, file: str) -> DataFrame:
    """Add the row tracking facts of each row's file; ``file`` is SQL for the file's position in ``rows``."""
    for name, values in ((_BASE, rows.base_row_ids), (_VERSION, rows.commit_versions)):
        df = df.withColumn(name, attached(values.combine_chunks(), T.LongType(), F.expr(file)))
    return df


def metadata_term(rows: TrackedRows) -> str:
    """SQL for ``_metadata`` over the result of :func:`with_origins`.

    >>> metadata_term(TrackedRows(pa.chunked_array([[0]]), pa.chunked_array([[1]]), None, None))[-55:]
    "'default_row_commit_version', __trilake_commit_version)"
    """
    fields = {name: f"{METADATA}.{name}" for name in _FIELDS} | {
        "row_id": _first_of(rows.id_column, f"{_BASE} + {METADATA}.row_index"),
        "row_commit_version": _first_of(rows.version_column, _VERSION),
        "base_row_id": _BASE,
        "default_row_commit_version": _VERSION,
    }
    return "named_struct(" + ", ".join(f"'{name}', {term}" for name, term in fields.items()) + ")"


def metadata_of_no_rows(provider: str, *, tracked: bool) -> str:
    """SQL for ``_metadata`` over a DataFrame without rows, of a table with these files.

    >>> metadata_of_no_rows("orc", tracked=False)[-35:]
    'file_modification_time: TIMESTAMP>)'
    """
    ids = ("row_id", "row_commit_version", "base_row_id", "default_row_commit_version")
    fields = _FIELDS | (dict.fromkeys(ids, "BIGINT") if tracked else {})
    if provider != "parquet":
        del fields["row_index"]
    return "CAST(NULL AS STRUCT<" + ", ".join(f"{name}: {type_}" for name, type_ in fields.items()) + ">)"


def _first_of(column: str | None, term: str) -> str:
    return term if column is None else f"coalesce({quote_name(column)}, {term})"
