"""Table feature ``inCommitTimestamp``: commits record their time."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, property_is_on
from trilake.delta.protocol.in_commit_timestamps import ENABLED, SINCE_TIME, SINCE_VERSION
from trilake.delta.protocol.property_values import Property, boolean, integer

_BY = "the commit that turns the feature on"

FEATURE = Feature(
    "inCommitTimestamp",
    None,
    7,
    active=property_is_on(ENABLED),
    properties=(
        Property(ENABLED, "false", boolean),
        Property(SINCE_TIME, None, integer(0), set_by=_BY),
        Property(SINCE_VERSION, None, integer(0), set_by=_BY),
    ),
)
