"""The checks of a Delta table, and the function that runs them."""

from __future__ import annotations

from trilake.delta.engine import Engine
from trilake.delta.verify import (
    checkpoints,
    checksums,
    footers,
    iceberg,
    log_files,
    partitions,
    protocol,
    row_ids,
    rows,
    statistics,
    vectors,
)
from trilake.delta.verify.context import DeltaContext
from trilake.storage.base import Store
from trilake.table.findings import MAX_LISTED, Check, Depth, Findings, run_checks

_LOG: tuple[Check[DeltaContext], ...] = (
    Check("delta.log-gap", "the versions in the log are contiguous", "log", log_files.no_gap),
    Check("delta.commit-unreadable", "every commit is lines of JSON actions", "log", log_files.commits_readable),
    Check("delta.version-unreadable", "readers can reconstruct the version", "log", log_files.version_readable),
    Check("delta.checkpoint-unreadable", "every checkpoint can be read", "log", checkpoints.readable),
    Check("delta.checkpoint-incomplete", "a checkpoint in parts has all of them", "log", checkpoints.complete),
    Check("delta.checkpoint-differs", "a checkpoint equals its commits", "log", checkpoints.same_as_commits),
    Check("delta.last-checkpoint-wrong", "_last_checkpoint describes a checkpoint", "log", checkpoints.hint),
    Check("delta.compaction-differs", "compaction files equal their commits", "log", checkpoints.compactions_same),
    Check("delta.checksum-differs", "version checksum files match the log", "log", checksums.true),
    Check("delta.in-commit-timestamp-wrong", "commits have increasing times", "log", protocol.in_commit_times),
    Check("delta.protocol-lacks-feature", "the protocol lists the features in use", "log", protocol.lists_features),
    Check("delta.column-mapping-wrong", "columns have unique ids and names", "log", protocol.column_mapping),
    Check("delta.file-twice", "every data file is in the version once", "log", protocol.once),
    Check("delta.partition-values-wrong", "files have a value of each partition column", "log", partitions.values),
    Check("delta.partition-path-differs", "folder names match the log's values", "log", partitions.paths),
    Check("delta.row-ids-missing", "with row tracking, every file has row ids", "log", row_ids.present),
    Check("delta.row-ids-overlap", "no two files share a row id", "log", row_ids.unique),
    Check("delta.row-id-mark-behind", "the mark of row ids is ahead of them", "log", row_ids.mark_ahead),
    Check("delta.identity-mark-behind", "the marks of identity columns are ahead", "log", row_ids.identity_marks),
    Check("delta.statistics-malformed", "statistics are JSON with a number of rows", "log", statistics.well_formed),
    Check("delta.iceberg-behind", "Iceberg metadata is of the version", "log", iceberg.current),
)
_FILES: tuple[Check[DeltaContext], ...] = (
    Check("delta.file-missing", "every data file of the version is there", "files", footers.present),
    Check("delta.file-size", "every data file has the size that the log states", "files", footers.sized),
    Check("delta.file-unreadable", "every data file can be opened", "files", footers.readable),
    Check("delta.statistics-num-records", "statistics state the number of rows", "files", footers.counted),
    Check("delta.iceberg-differs", "Iceberg snapshots have the version's files", "files", iceberg.same_files),
    Check("delta.deletion-vector-unreadable", "every deletion vector can be read", "files", vectors.readable),
    Check("delta.deletion-vector-cardinality", "a vector deletes as many rows as stated", "files", vectors.counted),
    Check("delta.deletion-vector-position", "a vector deletes rows that the file has", "files", vectors.inside),
)
_ROWS: tuple[Check[DeltaContext], ...] = (
    Check("delta.rows-unreadable", "every row can be read", "rows", rows.readable),
    Check("delta.statistics-bounds", "no row is outside its file's bounds", "rows", statistics.bounds),
    Check("delta.statistics-nulls", "statistics state how many values are null", "rows", statistics.nulls),
    Check("delta.constraint-violated", "every row satisfies the table's rules", "rows", rows.rules_hold),
)
CHECKS = (*_LOG, *_FILES, *_ROWS)


def verify_delta(
    store: Store, engine: Engine, version: int | None, depth: Depth, sample: int | None, limit: int = MAX_LISTED
) -> Findings:
    """Run all checks of a Delta table up to a depth; see :func:`trilake.verify`."""
    context = DeltaContext(store, engine, version, depth, sample)
    at = context.version
    findings, runs = run_checks(CHECKS, context, depth, limit)
    return Findings(store.uri, "delta", at, depth, findings, runs)
