"""Metrics of an optimization: delta-spark's fields, with Python names.

:func:`as_row` returns them with delta-spark's own names, as in the DataFrame of ``executeCompaction``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any


@dataclass(frozen=True)
class FileSizes:
    """Sizes of some files in bytes; ``min`` and ``max`` are ``None`` without files."""

    min: int | None = None
    max: int | None = None
    avg: float = 0.0
    total_files: int = 0
    total_size: int = 0

    @classmethod
    def of(cls, sizes: Sequence[int]) -> FileSizes:
        """The statistics of these sizes in bytes.

        >>> FileSizes.of([1, 3])
        FileSizes(min=1, max=3, avg=2.0, total_files=2, total_size=4)
        """
        if not sizes:
            return cls()
        return cls(min(sizes), max(sizes), sum(sizes) / len(sizes), len(sizes), sum(sizes))


@dataclass(frozen=True)
class ZOrderFileStats:
    """Number and bytes of some files."""

    num: int = 0
    size: int = 0


@dataclass(frozen=True)
class ZOrderStats:
    """Input and output of Z-ordering; ``num_output_cubes`` is one per partition."""

    strategy_name: str
    input_cube_files: ZOrderFileStats
    input_other_files: ZOrderFileStats
    input_num_cubes: int
    merged_files: ZOrderFileStats
    num_output_cubes: int
    merged_num_cubes: int | None = None


@dataclass(frozen=True)
class ClusteringFileStats:
    """Number and bytes of some files."""

    num_files: int = 0
    size: int = 0


@dataclass(frozen=True)
class ClusteringStats:
    """Clustering: files considered (``input_*``), rewritten (``merged_files``), and new cubes
    (``num_output_z_cubes``).
    """

    input_z_cube_files: ClusteringFileStats
    input_other_files: ClusteringFileStats
    input_num_z_cubes: int
    merged_files: ClusteringFileStats
    num_output_z_cubes: int


@dataclass(frozen=True)
class ParallelismStats:
    """How many tasks of auto compaction ran at the same time, in the cluster and in the session."""

    max_cluster_active_parallelism: int | None = None
    min_cluster_active_parallelism: int | None = None
    max_session_active_parallelism: int | None = None
    min_session_active_parallelism: int | None = None


@dataclass(frozen=True)
class DeletionVectorStats:
    """Removed deletion vectors, and their deleted rows."""

    num_deletion_vectors_removed: int = 0
    num_deletion_vector_rows_removed: int = 0


@dataclass(frozen=True)
class OptimizeMetrics:
    """The metrics of one optimization; times in ms since the epoch, sizes in bytes."""

    num_files_added: int = 0
    num_files_removed: int = 0
    files_added: FileSizes = field(default_factory=FileSizes)
    files_removed: FileSizes = field(default_factory=FileSizes)
    partitions_optimized: int = 0
    z_order_stats: ZOrderStats | None = None
    clustering_stats: ClusteringStats | None = None
    num_bins: int = 0
    num_batches: int = 0
    total_considered_files: int = 0
    total_files_skipped: int = 0
    preserve_insertion_order: bool = False
    num_files_skipped_to_reduce_write_amplification: int = 0
    num_bytes_skipped_to_reduce_write_amplification: int = 0
    start_time_ms: int = 0
    end_time_ms: int = 0
    total_cluster_parallelism: int = 0
    total_scheduled_tasks: int = 0
    auto_compact_parallelism_stats: ParallelismStats | None = None
    deletion_vector_stats: DeletionVectorStats | None = None
    num_table_columns: int = 0
    num_table_columns_with_stats: int = 0


def camel(name: str) -> str:
    """A field's name in delta-spark.

    >>> camel("input_num_z_cubes"), camel("start_time_ms")
    ('inputNumZCubes', 'startTimeMs')
    """
    return re.sub(r"_(\w)", lambda m: m[1].upper(), name)


def as_row(value: Any) -> Any:
    """Metrics as nested dictionaries with delta-spark's names.

    >>> as_row(FileSizes.of([2]))
    {'min': 2, 'max': 2, 'avg': 2.0, 'totalFiles': 1, 'totalSize': 2}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {camel(f.name): as_row(getattr(value, f.name)) for f in fields(value)}
    return value


def history_metrics(
    added: Sequence[int], removed: Sequence[int], vectors: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """The operation metrics of the commit.

    ``added`` and ``removed`` are sizes; ``vectors`` are the removed deletion vectors.
    """
    sizes = sorted(added)
    count = len(sizes)
    quartiles = {"min": 0, "p25": count // 4, "p50": count // 2, "p75": count * 3 // 4, "max": count - 1}
    return {
        "numAddedFiles": count,
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(added),
        "numRemovedBytes": sum(removed),
        **{f"{name}FileSize": sizes[at] if count else 0 for name, at in quartiles.items()},
        "numDeletionVectorsRemoved": len(vectors),
        "numDeletionVectorRowsRemoved": sum(v["cardinality"] or 0 for v in vectors),
        "numDeletionVectorBytesRemoved": sum(v["sizeInBytes"] or 0 for v in vectors),
    }
