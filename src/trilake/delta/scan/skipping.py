"""Data skipping: which files of a snapshot a filter needs, and why it skips the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.scan.generated_partitions import derived_partition_filter
from trilake.delta.scan.statistics import StatisticsReader
from trilake.expr import FileStats, Filter, SkipResult, can_match


@dataclass(frozen=True)
class Skipped:
    """``keep`` has one entry per file of the snapshot, or is ``None`` without a filter."""

    keep: np.ndarray[Any, np.dtype[np.bool_]] | None
    result: SkipResult | None = None

    @property
    def all_rows(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Files whose every row is proven to match."""
        return None if self.result is None else self.result.every_row


def skip_files(snapshot: Snapshot, filter: Filter | None, files: pa.Table | None = None) -> Skipped:
    """Decide for every file of the snapshot whether it can hold a row for which ``filter`` is true.

    ``files`` are the files to decide on, by default all.
    """
    if filter is None:
        return Skipped(None)
    stats = _statistics(snapshot, snapshot.adds if files is None else files, filter)
    result = can_match(filter, stats)
    derived = derived_partition_filter(filter, snapshot.schema, snapshot.metadata.partition_columns)
    if derived is not None:
        result = _both(result, can_match(derived, stats))
    return Skipped(result.keep, result)


def _both(first: SkipResult, second: SkipResult) -> SkipResult:
    """Files that both keep; ``first`` proves more about all rows of a file than ``second``."""
    if len(first.reasons) + len(second.reasons) > np.iinfo(np.int16).max:
        return first  # reasons are numbered in 16 bits
    keep = first.keep & second.keep
    number = second.reason.astype(np.int64) + len(first.reasons)
    reason = np.where(first.keep & ~second.keep, number, first.reason).astype(np.int16)
    return SkipResult(keep, first.every_row & keep, reason, first.reasons + second.reasons)


def _statistics(snapshot: Snapshot, adds: pa.Table, filter: Filter, *, without_nan: bool = False) -> FileStats:
    """Statistics of files, parsed once for all columns of the filter."""
    columns = tuple(snapshot.schema.field(c).name for c in snapshot.metadata.partition_columns)
    reader = StatisticsReader(adds, snapshot.schema, columns, without_nan)
    reader.read(filter.paths)
    return reader.file_stats()


def explain_files(snapshot: Snapshot, filter: Filter | None) -> pa.Table:
    """One row per file: ``path``, ``kept`` and ``reason``, why the filter skips or keeps it."""
    skipped = skip_files(snapshot, filter)
    paths = decoded_paths(snapshot.adds["path"])
    count = len(paths)
    if filter is None or skipped.result is None:
        keep: Any = pa.repeat(True, count)
        reasons: Any = pa.repeat("no filter", count)
    else:
        keep = pa.array(skipped.result.keep)
        files = snapshot.adds.filter(keep)
        bounded = can_match(filter, _statistics(snapshot, files, filter, without_nan=True)).keep
        why_kept = pc.if_else(
            pa.array(bounded), "may hold matching rows", "may have a NaN, which bounds do not include"
        )
        reasons = pc.replace_with_mask(skipped.result.reason_texts(), keep, why_kept)
    return pa.table({"path": paths, "kept": keep, "reason": reasons})


def matching_partitions(snapshot: Snapshot, files: pa.Table, filter: Filter) -> pa.Array:
    """For each of ``files`` (only ``partitionValues`` is read) whether ``filter``, over partition columns, is true."""
    columns: Mapping[str, pa.Array] = {"stats": pa.nulls(files.num_rows, pa.string())}
    adds = pa.table({"partitionValues": files["partitionValues"], **columns})
    return pa.array(can_match(filter, _statistics(snapshot, adds, filter)).every_row)
