"""Table feature ``v2Checkpoint``: checkpoints with unique names and sidecars."""

from __future__ import annotations

import re

from trilake.common.text import plural
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Trace,
    metadata_in_past,
    never,
)
from trilake.delta.protocol.property_values import Property, choice

KEY = "delta.checkpointPolicy"
_NAME = re.compile(r"\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)$")


def _wants_v2(metadata: Metadata) -> bool:
    return metadata.configuration.get(KEY) == "v2"


def _in_use(table: Inspection) -> Trace | None:
    """Readers without the feature cannot find v2 checkpoints by name."""
    names = [key for key in table.checkpoint_keys() if _NAME.search(key)]
    help = "drop the feature again with truncate_history once log cleanup has removed them"
    return Trace(f"the log has {plural(len(names), 'v2 checkpoint')}", help) if names else None


FEATURE = Feature(
    "v2Checkpoint",
    3,
    7,
    active=_wants_v2,
    properties=(Property(KEY, "classic", choice("classic", "v2"), late=True),),
    removal=FeatureRemoval(in_use=_in_use, in_past=metadata_in_past(never)),
    late=True,
)
