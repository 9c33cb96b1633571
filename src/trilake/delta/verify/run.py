"""The checks of a Delta table, and the function that runs them."""

from __future__ import annotations

from trilake.delta.engine import Engine
from trilake.delta.verify import data_files as files
from trilake.delta.verify import log_files, rows, version
from trilake.delta.verify.context import DeltaContext
from trilake.storage.base import Store
from trilake.table.findings import MAX_LISTED, Check, Depth, Findings, run_checks

_LOG: tuple[Check[DeltaContext], ...] = (
    Check("delta.log-gap", "the versions in the log are contiguous", "log", log_files.no_gap),
    Check(
        "delta.commit-unreadable",
        "every commit consists of JSON actions, one per line",
        "log",
        log_files.commits_readable,
    ),
    Check("delta.version-unreadable", "readers can reconstruct the version", "log", log_files.version_readable),
    Check("delta.checkpoint-unreadable", "every checkpoint can be read", "log", log_files.checkpoints_readable),
    Check("delta.checkpoint-incomplete", "no multi-part checkpoint lacks a part", "log", log_files.parts_complete),
    Check("delta.checkpoint-differs", "checkpoints match their commits", "log", log_files.checkpoints_same),
    Check("delta.last-checkpoint-wrong", "_last_checkpoint describes a checkpoint", "log", log_files.hint),
    Check("delta.compaction-differs", "compaction files match their commits", "log", log_files.compactions_same),
    Check("delta.checksum-differs", "version checksum files match the log", "log", log_files.checksums_same),
    Check("delta.in-commit-timestamp-wrong", "commits have increasing times", "log", version.in_commit_times),
    Check("delta.protocol-lacks-feature", "the protocol lists the features in use", "log", version.lists_features),
    Check("delta.column-mapping-wrong", "columns have unique ids and names", "log", version.column_mapping),
    Check("delta.file-twice", "no data file is listed twice", "log", version.once),
    Check("delta.partition-values-wrong", "files have a value for each partition column", "log", version.values),
    Check("delta.partition-path-differs", "folder names match the log's values", "log", version.paths),
    Check("delta.row-ids-missing", "with row tracking, every file has row ids", "log", version.row_ids_present),
    Check("delta.row-ids-overlap", "no two files share a row id", "log", version.row_ids_unique),
    Check("delta.row-id-mark-behind", "no row id exceeds the high-water mark", "log", version.mark_ahead),
    Check(
        "delta.identity-mark-behind", "identity values are within the high-water mark", "log", version.identity_marks
    ),
    Check("delta.statistics-malformed", "statistics are JSON with a row count", "log", rows.well_formed),
    Check("delta.iceberg-behind", "Iceberg metadata matches the version", "log", version.iceberg_current),
)
_FILES: tuple[Check[DeltaContext], ...] = (
    Check("delta.file-missing", "every data file of the version exists", "files", files.present),
    Check("delta.file-size", "file sizes match the log", "files", files.sized),
    Check("delta.file-unreadable", "every data file can be opened", "files", files.readable),
    Check("delta.statistics-num-records", "row counts in statistics match the files", "files", files.counted),
    Check("delta.iceberg-differs", "Iceberg snapshots have the version's files", "files", version.iceberg_same),
    Check("delta.deletion-vector-unreadable", "every deletion vector can be read", "files", files.vectors_read),
    Check(
        "delta.deletion-vector-cardinality", "cardinalities match the deletion vectors", "files", files.vectors_count
    ),
    Check(
        "delta.deletion-vector-position", "deletion vectors only delete existing rows", "files", files.vectors_inside
    ),
)
_ROWS: tuple[Check[DeltaContext], ...] = (
    Check("delta.rows-unreadable", "every row can be read", "rows", rows.readable),
    Check("delta.statistics-bounds", "no row is outside its file's bounds", "rows", rows.bounds),
    Check("delta.statistics-nulls", "null counts in statistics are correct", "rows", rows.nulls),
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
