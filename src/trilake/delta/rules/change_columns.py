"""The columns that a change data feed adds, whose names table columns must not have."""

from __future__ import annotations

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.property_values import is_on
from trilake.errors import InvalidArgumentError

CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_ENABLED = "delta.enableChangeDataFeed"


def check_change_columns(before: Metadata | None, after: Metadata) -> None:
    """Raise ``InvalidArgumentError`` where a table with a change data feed gets columns with the feed's names.

    ``before`` is the table's metadata, ``None`` for a new table.
    """
    if not is_on(after.configuration, _ENABLED):
        return
    taken = [c for c in CHANGE_COLUMNS if after.schema.find(c) is not None]
    if not taken:
        return
    if before is not None and is_on(before.configuration, _ENABLED):
        raise InvalidArgumentError(
            f"the table has a change data feed, whose columns have the names {', '.join(taken)}",
            help="give the columns other names, or set delta.enableChangeDataFeed to false first",
            condition="RESERVED_CDC_COLUMNS_ON_WRITE",
        )
    raise InvalidArgumentError(
        f"a table with columns {', '.join(taken)} cannot have a change data feed, which has columns of these names",
        help="rename those columns, or leave delta.enableChangeDataFeed off",
        condition="DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
    )
