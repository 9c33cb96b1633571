"""Table properties for Iceberg compatibility, and what they require of data files.

Protocol: *Iceberg Compatibility V1*, *V2* and, among its proposals, *V3* and *Materialize Partition Columns*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.property_values import is_on

#: Table properties that turn on a version of the compatibility.
ENABLED: Mapping[int, str] = {v: f"delta.enableIcebergCompatV{v}" for v in (1, 2, 3)}
#: Writer feature: files also hold the partition columns.
MATERIALIZED = "materializePartitionColumns"
#: Table property: the same, but other writers may ignore it.
WRITE_PARTITIONS = "delta.writePartitionColumnsToParquet"
#: Table property: the formats whose metadata is written after each commit.
UNIFORM = "delta.universalFormat.enabledFormats"
#: Tag of a file: the compatibility version for which it was written.
TAG = "ICEBERG_COMPAT_VERSION"
#: Iceberg's ids for the columns with the id of a row and the version that last changed it.
ROW_ID_FIELD, ROW_VERSION_FIELD = 2147483540, 2147483539


def compat_versions(configuration: Mapping[str, str]) -> list[int]:
    """The compatibility versions that are on; more than one is an error.

    >>> compat_versions({"delta.enableIcebergCompatV2": "true"})
    [2]
    """
    return [v for v, key in ENABLED.items() if is_on(configuration, key)]


def is_uniform(configuration: Mapping[str, str]) -> bool:
    """Whether Iceberg metadata is written after each commit.

    >>> is_uniform({UNIFORM: "iceberg"})
    True
    """
    return "iceberg" in {name.strip().lower() for name in configuration.get(UNIFORM, "").split(",")}


def without_uniform(metadata: Metadata) -> Metadata:
    """The metadata without the Iceberg property, unless a compatibility version is on."""
    if compat_versions(metadata.configuration) or not is_uniform(metadata.configuration):
        return metadata
    return replace(metadata, configuration={k: v for k, v in metadata.configuration.items() if k != UNIFORM})


def needs_nested_ids(configuration: Mapping[str, str]) -> bool:
    """Whether elements of arrays, and keys and values of maps, need field ids."""
    return any(v > 1 for v in compat_versions(configuration))


def writes_partition_columns(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Whether files also hold the partition columns, after all others."""
    return (
        MATERIALIZED in (protocol.writer_features or ())
        or bool(compat_versions(configuration))
        or is_on(configuration, WRITE_PARTITIONS)
    )
