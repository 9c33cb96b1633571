"""Table features whose tables are not written here, or not even read."""

from __future__ import annotations

from trilake.delta.protocol.feature import Feature, property_is_on
from trilake.delta.protocol.property_values import Property, boolean


def _iceberg(version: str) -> Feature:
    """Tables with such metadata must be written so that Iceberg can read them."""
    key = f"delta.enableIcebergCompat{version}"
    return Feature(
        f"icebergCompat{version}",
        None,
        7,
        writes=False,
        active=property_is_on(key),
        needs=("columnMapping",),
        properties=(Property(key, None, boolean),),
    )


ICEBERG_V1, ICEBERG_V2 = _iceberg("V1"), _iceberg("V2")
#: Commits of such a table live in a catalogue first: the file system alone may miss the newest ones.
CATALOG_MANAGED = Feature(
    "catalogManaged",
    3,
    7,
    reads=False,
    writes=False,
    needs=("inCommitTimestamp", "vacuumProtocolCheck"),
    removal=None,
)
