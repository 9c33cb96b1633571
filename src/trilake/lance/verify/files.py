"""Checks of data and deletion files: existence, integrity, row counts."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from trilake.lance.v1.data_file import V1File
from trilake.lance.v2.file import V2File
from trilake.lance.v2.rules import violations
from trilake.lance.verify.context import LanceContext, OpenFile
from trilake.table.findings import Finding, unreadable


def present(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file exists."""
    for one in table.files:
        if one.size is None:
            yield table.finding("file-missing", "a data file of the version is missing", one)
    return len(table.files)


def sized(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file has the size stated in the manifest, if any."""
    for one in table.files:
        if one.size is not None and one.entry.size_bytes and one.size != one.entry.size_bytes:
            message = f"the file has {one.size:,} bytes, but the manifest says {one.entry.size_bytes:,}"
            yield table.finding("file-size", message, one)
    return len(table.files)


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file can be opened: footer, metadata and page table."""
    for one in table.files:
        if one.error is not None:
            yield table.finding("file-unreadable", unreadable("", one.error).message, one)
        elif isinstance(one.file, V2File):
            for broken in violations(one.file.container):
                where = "" if broken.column is None else f"column {broken.column}: "
                yield table.finding("file-unreadable", where + broken.message, one)
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
            yield table.finding("fragment-rows", message, one)
        other = first.setdefault(one.fragment.id, one)
        if not isinstance(one.file, V1File) or not isinstance(other.file, V1File):
            continue  # files of 2.x have no batches
        if not np.array_equal(other.file.batch_offsets, one.file.batch_offsets):
            yield table.finding("fragment-rows", f"the data file and {other.entry.key} have different batches", one)
    return len(table.files)


def deletions_readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file exists and is readable."""
    for one in table.deletions:
        if one.error is not None:
            yield table.finding("deletion-file-unreadable", unreadable("", one.error).message, file=one.key)
    return len(table.deletions)


def deletions_counted(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file has the row count stated in the manifest, if any."""
    for one in table.deletions:
        if one.error is None and one.stated and one.count != one.stated:
            message = f"the deletion file has {one.count:,} rows, but the manifest says {one.stated:,}"
            yield table.finding("deletion-file-count", message, file=one.key)
    return len(table.deletions)


def deletions_inside(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file has only rows that exist in its fragment."""
    for one in table.deletions:
        if one.rows and one.last >= one.rows:
            message = f"the deletion file has row {one.last:,}, but its fragment has only {one.rows:,} rows"
            yield table.finding("deletion-file-position", message, file=one.key)
    return len(table.deletions)
