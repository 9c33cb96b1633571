"""Checks of headers, descriptors and schemas, which do not read blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pyarrow as pa

from trilake.errors import TrilakeError
from trilake.table.findings import Finding, unreadable
from trilake.trevni.blocks.header_bytes import ParentError
from trilake.trevni.verify.context import OpenFile, TrevniContext

HELP = "restore the file from a backup, or write it again"


def finding(code: str, error: Exception, key: str) -> Finding:
    """Convert an error to a finding."""
    base = unreadable(code, error)
    context = error.context if isinstance(error, TrilakeError) else {}
    details: dict[str, Any] = {k: context[k] for k in ("block", "offset") if k in context}
    return Finding(code, base.message, HELP, file=key, column=base.column, details={**base.details, **details})


def folders(table: TrevniContext) -> Generator[Finding, None, int]:
    """All files are in folders with the same partition columns."""
    names = [tuple(name for name, _ in f.partition) for f in table.files]
    usual = Counter(names).most_common(1)[0][0]
    for file, columns in zip(table.files, names, strict=True):
        if columns != usual:
            yield Finding(
                "trevni.partition-folders-differ",
                f"expected partition folders of {', '.join(usual) or 'no column'}, got {', '.join(columns) or 'none'}",
                "move the file into folders of the same partition columns: readers see nulls in those it lacks",
                file=file.key,
            )
    return len(names)


def readable(table: TrevniContext) -> Generator[Finding, None, int]:
    """Every file has a readable header."""
    for one in table.opened:
        if one.error is not None and not isinstance(one.error, ParentError):
            yield finding("trevni.header-unreadable", one.error, one.key)
    return len(table.opened)


def parents(table: TrevniContext) -> Generator[Finding, None, int]:
    """The parent of every column is an earlier array column."""
    for one in table.opened:
        if isinstance(one.error, ParentError):
            yield finding("trevni.parent-wrong", one.error, one.key)
    return len(table.opened)


def descriptors(table: TrevniContext) -> Generator[Finding, None, int]:
    """The block descriptors of every column match the file: sizes, positions, and row counts."""
    count = 0
    for one in table.opened:
        count += len(one.tables) + len(one.table_errors)
        for error in one.table_errors.values():
            yield finding("trevni.descriptor-wrong", error, one.key)
    return count


def schemas(table: TrevniContext) -> Generator[Finding, None, int]:
    """The schema of every file matches its columns."""
    for one in table.opened:
        schema = _schema(one)
        if isinstance(schema, Exception):
            yield finding("trevni.schema-wrong", schema, one.key)
    return len(table.opened)


def _schema(one: OpenFile) -> pa.Schema | Exception | None:
    """Return the schema of a file, or the error; ``None`` if the file could not be opened."""
    try:
        return None if one.file is None else one.file.schema
    except (TrilakeError, OSError, pa.ArrowException) as e:
        return e


def same_columns(table: TrevniContext) -> Generator[Finding, None, int]:
    """All files of a table have the same columns."""
    first: tuple[str, pa.Schema] | None = None
    for one in table.opened:
        schema = _schema(one)
        if not isinstance(schema, pa.Schema):
            continue
        if first is None:
            first = one.key, schema
        elif {f.name: f.type for f in schema} != {f.name: f.type for f in first[1]}:
            other = sorted(
                f.name for f in {*schema, *first[1]} if f.name not in schema.names or f.name not in first[1].names
            ) or sorted(f.name for f in schema if f.type != first[1].field(f.name).type)
            yield Finding(
                "trevni.schema-differs",
                f"the file and {first[0]} have different columns: {', '.join(other)[:300]}",
                "readers see nulls in columns that a file lacks; write the files again with one schema",
                severity="warning",
                file=one.key,
            )
    return len(table.opened)
