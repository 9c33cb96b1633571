"""Clustering columns: OPTIMIZE keeps rows with similar values in these columns together.

Table feature ``clustering``.  The metadata domain ``delta.clustering`` holds physical names, so renames do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trilake.delta.log.checkpoint_stats import indexed_paths
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.schema_edit import Path, PathLike, field_at, format_path, spelled
from trilake.errors import CorruptLogError, InvalidArgumentError

FEATURE = "clustering"
DOMAIN = "delta.clustering"
MOST_COLUMNS = 4


def clustering_columns(head: Head) -> list[Path]:
    """The clustering columns as display paths, if any.  Raises ``CorruptLogError`` for a malformed domain."""
    if not has_feature(head.protocol, FEATURE):
        return []
    fields = clustering_fields(head.state.domains.get(DOMAIN), head.schema, head.version)
    return [tuple(f.name for f in path) for path in fields]


def clustering_fields(
    domain: Mapping[str, Any] | None, schema: StructType, version: int
) -> list[tuple[StructField, ...]]:
    """The paths of the fields that a ``domainMetadata`` action names.  Raises ``CorruptLogError``."""
    if domain is None or domain.get("removed"):
        return []
    try:
        columns = [list(map(str, p)) for p in orjson.loads(domain["configuration"])["clusteringColumns"] or ()]
    except (KeyError, TypeError, orjson.JSONDecodeError) as e:
        message = f"the metadata domain {DOMAIN} does not list its columns ({type(e).__name__}: {e})"
        raise CorruptLogError(message, help="set the clustering columns again", version=version) from e
    paths = (schema.along(names, physical=True) for names in columns)
    return [path for path in paths if path]


def chosen_clustering(metadata: Metadata, columns: Sequence[PathLike]) -> str:
    """The configuration of the domain for columns that a user chooses; there may be none.

    Raises ``InvalidArgumentError`` for columns that cannot cluster rows or get no statistics, ``SchemaMismatchError``
    for unknown columns.
    """
    if metadata.partition_columns and columns:
        message = "a table can be partitioned or clustered, but not both"
        help = "leave out the partition columns or the clustering columns"
        raise InvalidArgumentError(message, help=help, condition="DELTA_CLUSTER_BY_WITH_PARTITIONED_BY")
    if len(columns) > MOST_COLUMNS:
        raise InvalidArgumentError(
            f"a table can be clustered by at most {MOST_COLUMNS} columns",
            condition="DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
        )
    domain = clustering_domain(metadata.schema, columns)
    check_clustering_statistics(metadata, columns)
    return domain


def check_clustering_statistics(metadata: Metadata, columns: Sequence[PathLike]) -> None:
    """Raise ``InvalidArgumentError`` if new files get no statistics for a clustering column."""
    indexed = indexed_paths(metadata.schema, metadata.partition_columns, metadata.configuration)
    paths = [spelled(metadata.schema, c) for c in columns]
    without = [format_path(p) for p in paths if ".".join(p).lower() not in indexed]
    if without:
        raise InvalidArgumentError(
            f"no statistics are collected for clustering column{'s' if without[1:] else ''} {', '.join(without)}",
            help="raise delta.dataSkippingNumIndexedCols, or name them in delta.dataSkippingStatsColumns",
            columns=", ".join(without),
            condition="DELTA_CLUSTERING_COLUMN_MISSING_STATS",
        )


def clustering_domain(schema: StructType, columns: Sequence[PathLike]) -> str:
    """The configuration of the domain for these columns.  Raises the errors of :func:`chosen_clustering`."""
    physical: list[list[str]] = []
    for path in columns:
        names = spelled(schema, path)
        f = field_at(schema, names)
        if not isinstance(f.type, PrimitiveType) or f.type.traits.bounds is None:
            raise InvalidArgumentError(
                f"a table cannot be clustered by column {format_path(names)} of type {f.type}",
                column=format_path(names),
                condition="DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
            )
        within = [field_at(schema, names[: i + 1]).physical_name for i in range(len(names))]
        if within in physical:
            message = f"clustering column {format_path(names)} is given twice"
            raise InvalidArgumentError(message, column=format_path(names), condition="COLUMN_ALREADY_EXISTS")
        physical.append(within)
    return orjson.dumps({"clusteringColumns": physical, "domainName": DOMAIN}).decode()
