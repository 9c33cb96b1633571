"""The metadata and protocol of a table after a write: of a new table, or evolved from the current metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trilake.common.runtime import Runtime
from trilake.delta.log.clustering import DOMAIN, FEATURE, chosen_clustering, clustering_columns
from trilake.delta.log.snapshot import Head
from trilake.delta.metadata.property_changes import prepared
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import mapped
from trilake.delta.protocol.features import protocol_for, upgrade_protocol, upgraded
from trilake.delta.protocol.partitions import check_partition_columns
from trilake.delta.protocol.properties import parse_properties
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import format_path, no_typed_column, without_voids
from trilake.delta.rules.new_columns import check_columns
from trilake.delta.rules.row_rules import RowRules
from trilake.errors import InvalidArgumentError, SchemaMismatchError


def no_place_for_rows(uri: str | None = None) -> SchemaMismatchError:
    """The error for a write to a table without columns that cannot get new ones."""
    return SchemaMismatchError(
        "the table has no columns, so no rows can be written",
        help='add the columns of the rows with option("mergeSchema", "true") (schema_mode="merge" in'
        " trilake.write), or add columns first",
        file=uri,
        condition="DELTA_EMPTY_DATA",
    )


def new_table(
    schema: StructType,
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str] | None,
    provider: str,
    runtime: Runtime,
    description: str | None = None,
    may_be_empty: bool = False,
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of a new table; ``may_be_empty`` allows a schema without columns.

    Raises ``SchemaMismatchError`` for a schema without columns or types, ``InvalidArgumentError`` for invalid partition
    columns, names or properties.
    """
    if not schema.fields and not may_be_empty:
        raise SchemaMismatchError("a table needs at least one column", condition="DELTA_EMPTY_DATA")
    if schema.fields and not without_voids(schema).fields:
        raise no_typed_column(schema)
    effects = parse_properties(properties or {})
    metadata = Metadata(
        id=runtime.new_id(),
        schema_string=schema.json(),
        partition_columns=check_partition_columns(schema, tuple(partition_by)),
        configuration=effects.values,
        description=description,
        provider=provider,
        created_time=runtime.clock_ms(),
    )
    metadata = mapped(prepared(None, metadata, new_id=runtime.new_id), new_id=runtime.new_id)
    check_columns(None, metadata)
    protocol = protocol_for(metadata, effects.features)
    if effects.reader is not None or effects.writer is not None:
        protocol = upgrade_protocol(protocol, effects.reader or 1, effects.writer or 2)
    return protocol, metadata


def check_partitioning(partition_by: Sequence[str] | None, metadata: Metadata, uri: str) -> None:
    """Raise ``SchemaMismatchError`` if the write's partition columns differ from the table's."""
    if partition_by is None:
        return
    if [c.lower() for c in partition_by] != [c.lower() for c in metadata.partition_columns]:
        current, given = (", ".join(columns) or "no column" for columns in (metadata.partition_columns, partition_by))
        raise SchemaMismatchError(
            f"the table is partitioned by {current}, but the write is partitioned by {given}",
            help="leave partition_by out, or use the table's partition columns",
            file=uri,
            condition="DELTA_METADATA_MISMATCH",
        )


def check_partitions_given(rules: RowRules, metadata: Metadata, uri: str) -> None:
    """Raise ``SchemaMismatchError`` if rows lack a partition column that is not generated, or have no other column.

    They would go into the null partition, or consist of nulls, without notice.
    """
    computed = {g.name for g in rules.generated} | {e.name for e in rules.needs_spark} | set(rules.defaults)
    missing = [c for c in metadata.partition_columns if c not in rules.present and c not in computed]
    if missing:
        raise SchemaMismatchError(
            f"the rows lack partition columns: {', '.join(missing)}",
            help="add these columns to the rows; nulls are allowed",
            file=uri,
            condition="DELTA_PARTITION_COLUMN_NOT_FOUND",
        )
    filled = computed | set(rules.present) | set(rules.generated_identities)
    if metadata.partition_columns and filled <= set(metadata.partition_columns):
        raise SchemaMismatchError(
            "the rows have only partition columns",
            help="add another column of the table to the rows; nulls are allowed",
            file=uri,
            condition="DELTA_NON_PARTITION_COLUMN_ABSENT",
        )


def check_properties(properties: Mapping[str, str] | None, metadata: Metadata, uri: str) -> None:
    """Raise ``InvalidArgumentError`` if a write sets a property to a value other than the table's."""
    for key, value in parse_properties(properties or {}).values.items():
        current = metadata.configuration.get(key)
        if current != value:
            raise InvalidArgumentError(
                f"the write has {key}={value}, but the table has {'no such property' if current is None else current}",
                help="properties are set when a table is created; change them with trilake.alter",
                file=uri,
            )


def clustered(
    base: Head | None, protocol: Protocol, metadata: Metadata, columns: Sequence[str] | None, *, replace: bool = False
) -> tuple[Protocol, dict[str, str | None]]:
    """The protocol and metadata domains of a table after a write with clustering columns.

    ``base`` is the table, ``None`` for a new one; ``protocol`` and ``metadata`` are those of the resulting table.
    ``columns`` is ``None`` if the write does not name any; ``replace`` indicates whether it replaces the columns of the
    table, and so its clustering too.  Raises ``SchemaMismatchError`` if the table has other clustering columns,
    ``InvalidArgumentError`` for invalid ones.
    """
    if columns is None:
        ends = replace and base is not None and DOMAIN in base.state.domains
        return protocol, {DOMAIN: None} if ends else {}
    if base is not None and not replace:
        current = [format_path(p) for p in clustering_columns(base)]
        if [c.lower() for c in current] != [c.lower() for c in columns]:
            raise SchemaMismatchError(
                f"the table is clustered by {current}, but the write is clustered by {list(columns)}",
                help="leave clusterBy out, or change the table's columns with trilake.alter(...).cluster_by",
                file=base.uri,
                condition="DELTA_CLUSTERING_COLUMNS_MISMATCH",
            )
        return protocol, {}
    domain = chosen_clustering(metadata, list(columns))
    return upgraded(protocol, metadata, [FEATURE]), {DOMAIN: domain}
