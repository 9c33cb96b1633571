"""The metrics that statements return, by Delta's names."""

from __future__ import annotations

from collections.abc import Sequence

MERGE = ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")
CLONE = (
    "source_table_size",
    "source_num_of_files",
    "num_removed_files",
    "num_copied_files",
    "removed_files_size",
    "copied_files_size",
)
RESTORE = (
    "table_size_after_restore",
    "num_of_files_after_restore",
    "num_removed_files",
    "num_restored_files",
    "removed_files_size",
    "restored_files_size",
)


def numbers(result: object, names: Sequence[str]) -> dict[str, int | None]:
    """These metrics of a command's result."""
    return {name: getattr(result, name) for name in names}
