"""Table feature ``deletionVectors``: rows are deleted by marking them."""

from __future__ import annotations

import numpy as np

from trilake.common.compute import pc
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Numbers,
    Past,
    files_in_use,
    property_is_on,
)
from trilake.delta.protocol.property_values import Property, boolean

KEY = "delta.enableDeletionVectors"


def _in_past(past: Past) -> bool:
    return any(files["deletionVector"].null_count < len(files) for files in past.files)


def _files(table: Inspection) -> Numbers:
    return np.flatnonzero(np.asarray(pc.is_valid(table.adds["deletionVector"])))


FEATURE = Feature(
    "deletionVectors",
    3,
    7,
    active=property_is_on(KEY),
    properties=(Property(KEY, "false", boolean, late=True),),
    removal=FeatureRemoval(in_use=files_in_use(_files, "deletion vectors"), in_past=_in_past, rewritten=_files),
    late=True,
)
