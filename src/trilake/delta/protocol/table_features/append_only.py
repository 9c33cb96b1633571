"""Table feature ``appendOnly``: rows are never changed or removed."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, property_is_on
from trilake.delta.protocol.property_values import Property, boolean
from trilake.errors import InvalidArgumentError

KEY = "delta.appendOnly"

FEATURE = Feature(
    "appendOnly", None, 2, active=property_is_on(KEY), properties=(Property(KEY, "false", boolean),), late=True
)


def removal_rejected(uri: str, so: str, help: str) -> InvalidArgumentError:
    """The error for removing rows from an append-only table; ``so`` is the consequence."""
    return InvalidArgumentError(
        f"This table is configured to only allow appends ({KEY}=true), so {so}",
        help=help,
        file=uri,
        condition="DELTA_CANNOT_MODIFY_APPEND_ONLY",
    )
