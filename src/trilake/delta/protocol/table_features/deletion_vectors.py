"""Table feature ``deletionVectors``: rows are deleted by marking them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trilake.common.compute import pc
from trilake.common.text import plural
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Numbers,
    Past,
    Trace,
    property_is_on,
)
from trilake.delta.protocol.property_values import Property, boolean

KEY = "delta.enableDeletionVectors"


def _count(files: pa.Table) -> int:
    return len(files) - int(files["deletionVector"].null_count)


def _in_use(table: Inspection) -> Trace | None:
    number = _count(table.adds)
    return Trace(f"{plural(number, 'file has', 'files have')} deletion vectors", rewrite=True) if number else None


def _in_past(past: Past) -> bool:
    return any(_count(files) > 0 for files in past.files)


def _files(table: Inspection) -> Numbers:
    return np.flatnonzero(np.asarray(pc.is_valid(table.adds["deletionVector"])))


FEATURE = Feature(
    "deletionVectors",
    3,
    7,
    active=property_is_on(KEY),
    properties=(Property(KEY, "false", boolean, late=True),),
    removal=FeatureRemoval(in_use=_in_use, in_past=_in_past, rewritten=_files),
    late=True,
)
