"""The columns of a change feed: the table's newest ones where they can hold all that the range wrote.

A column added after the range is null in its rows.  Where a column was dropped or changed its type since, and in tables
with column mapping, the feed has the columns of the last version of the range.
"""

from __future__ import annotations

from collections.abc import Iterable

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import (
    DataType,
    StructType,
    paired,
)


def feed_metadata(newest: Metadata, last: Metadata, written: Iterable[Metadata]) -> Metadata:
    """The metadata to read a change feed with.

    Parameters
    ----------
    newest: that of the table.
    last: that of the last version of the range.
    written: those of the versions of the range.
    """
    states = (*written, last)
    if any(m.column_mapping_mode != "none" for m in (newest, *states)):
        return last
    return newest if all(_takes(newest, m) for m in states) else last


def _takes(newest: Metadata, written: Metadata) -> bool:
    same_files = (newest.partition_columns, newest.provider) == (written.partition_columns, written.provider)
    return same_files and _holds(newest.schema, written.schema)


def _holds(new: DataType, old: DataType) -> bool:
    """Whether a type has every part of another one unchanged, ignoring nullability."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        pairs = [(new.find(f.name), f) for f in old.fields]
        return all(n is not None and _holds(n.type, f.type) for n, f in pairs)
    inside = paired(new, old)
    return old == new if inside is None else all(_holds(a, b) for _, a, b in inside)
