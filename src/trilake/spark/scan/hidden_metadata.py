"""The hidden column ``_metadata`` of tables that track their rows: Spark's fields, and the ids and versions of rows.

Spark takes no further fields into the ``_metadata`` of its scans.  So a frame of such files hides a column of that name
of its own, with ``row_id``, ``row_commit_version``, ``base_row_id`` and ``default_row_commit_version`` behind Spark's.

A row's id is the one that its file keeps for it, as it does for rows that moved, and else the first id of its file and
the row's number in there.  Spec: *Row Tracking*, "Reader Requirements".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.spark.scan.partitions import attached

__all__ = [
    "METADATA",
    "TrackedRows",
    "has_metadata",
    "metadata_of_no_rows",
    "metadata_term",
    "with_origins",
]

#: The hidden column of Spark's scans.
METADATA = "_metadata"
#: The fields that Spark gives it for Parquet files.
_FIELDS = {
    "file_path": "STRING",
    "file_name": "STRING",
    "file_size": "BIGINT",
    "file_block_start": "BIGINT",
    "file_block_length": "BIGINT",
    "file_modification_time": "TIMESTAMP",
    "row_index": "BIGINT",
}
#: Columns of a scan of tracked rows: what the log says of a row's file.
_BASE, _VERSION = "__trilake_base_row_id", "__trilake_commit_version"


@dataclass(frozen=True)
class TrackedRows:
    """What the log says of the rows of some files.

    Parameters
    ----------
    base_row_ids: the id of each file's first row; null where a file has none.
    commit_versions: the version that each file's rows come from, as far as the file does not say.
    id_column: the column of the read schema in which files keep the ids of rows that moved, if there is one.
    version_column: that of the versions that last changed them.
    """

    base_row_ids: pa.ChunkedArray
    commit_versions: pa.ChunkedArray
    id_column: str | None
    version_column: str | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.base_row_ids.nbytes + self.commit_versions.nbytes)


def has_metadata(df: DataFrame) -> bool:
    """Whether the hidden column of a scan can be named: no column of the table is called so."""
    return METADATA not in (name.lower() for name in df.columns)


def with_origins(df: DataFrame, rows: TrackedRows, file: str) -> DataFrame:
    """A scan with what the log says of each row's file; ``file`` is the term for the file's position in ``rows``."""
    for name, values in ((_BASE, rows.base_row_ids), (_VERSION, rows.commit_versions)):
        df = df.withColumn(name, attached(values.combine_chunks(), T.LongType(), F.expr(file)))
    return df


def metadata_term(rows: TrackedRows) -> str:
    """``_metadata`` as a term over :func:`with_origins`.

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


def metadata_of_no_rows() -> str:
    """``_metadata`` as a term over a frame without rows."""
    ids = ("row_id", "row_commit_version", "base_row_id", "default_row_commit_version")
    fields = _FIELDS | dict.fromkeys(ids, "BIGINT")
    return "CAST(NULL AS STRUCT<" + ", ".join(f"{name}: {type_}" for name, type_ in fields.items()) + ">)"


def _first_of(column: str | None, term: str) -> str:
    return term if column is None else f"coalesce({quote_name(column)}, {term})"
