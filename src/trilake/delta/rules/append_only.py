"""Append-only tables: the property ``delta.appendOnly``."""

from __future__ import annotations

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.table_features import APPEND_ONLY
from trilake.errors import InvalidArgumentError


def removal_refused(uri: str, *, so: str = "rows cannot be removed", help: str) -> InvalidArgumentError:
    """The error for removing rows from an append-only table; ``so`` is the consequence."""
    return InvalidArgumentError(
        f"This table is configured to only allow appends ({APPEND_ONLY}=true), so {so}",
        help=help,
        file=uri,
        condition="DELTA_CANNOT_MODIFY_APPEND_ONLY",
    )


def check_removable(metadata: Metadata, operation: str, uri: str) -> None:
    """Raise ``InvalidArgumentError`` if the table is append-only."""
    if is_on(metadata.configuration, APPEND_ONLY):
        help = "set delta.appendOnly=false to change or remove rows"
        raise removal_refused(uri, so=f"{operation} is not possible", help=help)
