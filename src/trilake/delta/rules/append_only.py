"""Append-only tables: the property ``delta.appendOnly``."""

from __future__ import annotations

from trilake.delta.protocol.table_features.append_only import KEY as APPEND_ONLY
from trilake.errors import InvalidArgumentError


def removal_rejected(
    uri: str, *, so: str = "rows cannot be removed", help: str = "set delta.appendOnly to false first"
) -> InvalidArgumentError:
    """The error for removing rows from an append-only table; ``so`` is the consequence."""
    return InvalidArgumentError(
        f"This table is configured to only allow appends ({APPEND_ONLY}=true), so {so}",
        help=help,
        file=uri,
        condition="DELTA_CANNOT_MODIFY_APPEND_ONLY",
    )
