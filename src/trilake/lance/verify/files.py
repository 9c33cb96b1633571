"""Checks of data files and deletion files: there, whole, of as many rows as their fragment, cut alike."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from trilake.errors import TrilakeError
from trilake.findings import Finding, unreadable
from trilake.lance.verify.context import LanceContext, OpenFile
from trilake.lance.versions import deletions
from trilake.lance.versions.manifest import MAX_ROWS

_HELP = "restore the file from a copy, or an older version of the dataset"


def _finding(table: LanceContext, code: str, message: str, one: OpenFile) -> Finding:
    details = {"fragment": one.fragment.id}
    return Finding(f"lance.{code}", message, _HELP, file=one.entry.key, version=table.version, details=details)


def present(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file is there."""
    for one in table.files:
        if one.size is None:
            yield _finding(table, "file-missing", "a data file that the version names is not there", one)
    return len(table.files)


def sized(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file has the size that the manifest states, where it states one."""
    for one in table.files:
        if one.size is not None and one.entry.size_bytes and one.size != one.entry.size_bytes:
            message = f"the file has {one.size:,} bytes, the manifest says {one.entry.size_bytes:,}"
            yield _finding(table, "file-size", message, one)
    return len(table.files)


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every data file can be opened: footer, metadata and page table."""
    for one in table.files:
        if one.error is not None:
            yield _finding(table, "file-unreadable", unreadable("", one.error).message, one)
    return len(table.files)


def rows(table: LanceContext) -> Generator[Finding, None, int]:
    """The data files of a fragment have its rows, cut into the same batches."""
    first: dict[int, OpenFile] = {}
    for one in table.files:
        if one.file is None:
            continue
        known = one.fragment.physical_rows
        if known and one.file.num_rows != known:
            message = f"the data file has {one.file.num_rows:,} rows, its fragment {known:,}"
            yield _finding(table, "fragment-rows", message, one)
        other = first.setdefault(one.fragment.id, one)
        if other.file is not None and not np.array_equal(other.file.batch_offsets, one.file.batch_offsets):
            yield _finding(table, "fragment-rows", f"it is cut into other batches than {other.entry.key}", one)
    return len(table.files)


def deletion_files(table: LanceContext) -> Generator[Finding, None, int]:
    """Every deletion file can be read, has as many rows as is stated, and rows that the fragment has."""
    counts = {f.fragment.id: f.file.num_rows for f in table.files if f.file is not None}
    looked_at = 0
    for fragment in table.manifest.fragments:
        entry = fragment.deletion_file
        if entry is None:
            continue
        looked_at += 1
        key = entry.key(fragment.id)
        try:
            data = table.store.read(key)
            found = deletions.decode(entry.file_type, data, rows=MAX_ROWS, file=key)
        except (TrilakeError, OSError) as e:
            yield _deletion(table, "unreadable", unreadable("", e).message, key)
            continue
        if entry.num_deleted_rows and len(found) != entry.num_deleted_rows:
            message = f"the deletion file has {len(found):,} rows, the manifest says {entry.num_deleted_rows:,}"
            yield _deletion(table, "count", message, key)
        limit = counts.get(fragment.id, fragment.physical_rows)
        if limit and found and found.max() >= limit:
            yield _deletion(table, "position", f"it deletes row {found.max():,} of a fragment with {limit:,} rows", key)
    return looked_at


def _deletion(table: LanceContext, what: str, message: str, key: str) -> Finding:
    return Finding(f"lance.deletion-file-{what}", message, _HELP, file=key, version=table.version)
