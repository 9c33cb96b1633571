"""Checks of data and deletion files: existence, integrity, row counts."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from trilake.lance.v1.data_file import V1File
from trilake.lance.v2.file import V2File
from trilake.lance.v2.rules import violations
from trilake.lance.verify.context import LanceContext, OpenFile
from trilake.table.findings import Finding, unreadable

_HELP = "restore the file from a backup, or an older version of the dataset"


def _finding(table: LanceContext, code: str, message: str, one: OpenFile) -> Finding:
    details = {"fragment": one.fragment.id}
    return Finding(f"lance.{code}", message, _HELP, file=one.entry.key, version=table.version, details=details)


def present(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file exists."""
    for one in table.files:
        if one.size is None:
            yield _finding(table, "file-missing", "a data file of the version is missing", one)
    return len(table.files)


def sized(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file has the size stated in the manifest, if any."""
    for one in table.files:
        if one.size is not None and one.entry.size_bytes and one.size != one.entry.size_bytes:
            message = f"the file has {one.size:,} bytes, but the manifest says {one.entry.size_bytes:,}"
            yield _finding(table, "file-size", message, one)
    return len(table.files)


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file can be opened: footer, metadata and page table."""
    for one in table.files:
        if one.error is not None:
            yield _finding(table, "file-unreadable", unreadable("", one.error).message, one)
        elif isinstance(one.file, V2File):
            for broken in violations(one.file.container):
                where = "" if broken.column is None else f"column {broken.column}: "
                yield _finding(table, "file-unreadable", where + broken.message, one)
    return len(table.files)


def rows(table: LanceContext) -> Generator[Finding, None, int]:
    """All data files of a fragment have its number of rows, and the same batches."""
    first: dict[int, OpenFile] = {}
    for one in table.files:
        if one.file is None:
            continue
        expected = one.fragment.physical_rows
        if expected and one.file.num_rows != expected:
            message = f"the data file has {one.file.num_rows:,} rows, but its fragment has {expected:,}"
            yield _finding(table, "fragment-rows", message, one)
        other = first.setdefault(one.fragment.id, one)
        if not isinstance(one.file, V1File) or not isinstance(other.file, V1File):
            continue  # files of 2.x have no batches
        if not np.array_equal(other.file.batch_offsets, one.file.batch_offsets):
            yield _finding(table, "fragment-rows", f"the data file and {other.entry.key} have different batches", one)
    return len(table.files)


def deletions_readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file exists and is readable."""
    for one in table.deletions:
        if one.error is not None:
            yield _deletion(table, "unreadable", unreadable("", one.error).message, one.key)
    return len(table.deletions)


def deletions_counted(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file has the row count stated in the manifest, if any."""
    for one in table.deletions:
        if one.error is None and one.stated and one.count != one.stated:
            message = f"the deletion file has {one.count:,} rows, but the manifest says {one.stated:,}"
            yield _deletion(table, "count", message, one.key)
    return len(table.deletions)


def deletions_inside(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file has only rows that exist in its fragment."""
    for one in table.deletions:
        if one.rows and one.last >= one.rows:
            message = f"the deletion file has row {one.last:,}, but its fragment has only {one.rows:,} rows"
            yield _deletion(table, "position", message, one.key)
    return len(table.deletions)


def _deletion(table: LanceContext, what: str, message: str, key: str) -> Finding:
    return Finding(f"lance.deletion-file-{what}", message, _HELP, file=key, version=table.version)
