"""ALTER TABLE for properties, constraints and protocol.

Pure functions from protocol and metadata to a :class:`~trilake.delta.metadata.schema_changes.MetadataChange`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from trilake.delta.commit import row_tracking, symlink_manifest
from trilake.delta.log.clustering import DOMAIN, chosen_clustering
from trilake.delta.log.clustering import FEATURE as CLUSTERING
from trilake.delta.metadata.schema_changes import STATS_COLUMNS, Condition, MetadataChange, logged_json
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import MODE, change_mode
from trilake.delta.protocol.features import add_feature as with_feature
from trilake.delta.protocol.features import has_feature, required, upgrade_protocol, upgraded
from trilake.delta.protocol.properties import parse_keys, parse_properties
from trilake.delta.protocol.property_values import column_list, is_on
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructType
from trilake.delta.protocol.schema_edit import Path, PathLike, format_path, spelled, type_at
from trilake.delta.protocol.table_features.deletion_vectors import KEY as DELETION_VECTORS
from trilake.delta.rules.constraints import PREFIX, parse_check
from trilake.delta.rules.iceberg_compat import with_needs
from trilake.delta.rules.new_columns import check_reserved_names
from trilake.errors import InvalidArgumentError, SchemaMismatchError, stating

#: Properties with the names of the row tracking columns in files, and the prefix of these names.
ROW_ID_COLUMNS = {row_tracking.ID_COLUMN: "_row-id-col-", row_tracking.VERSION_COLUMN: "_row-commit-version-col-"}
COMMENT = "comment"
#: Shown among the properties of a clustered table, and not stored.
CLUSTERING_COLUMNS = "clusteringColumns"


def set_properties(
    protocol: Protocol, metadata: Metadata, properties: Mapping[str, object], *, new_id: Callable[[], str]
) -> MetadataChange:
    """Set table properties, and enable the features that they need.

    ``delta.feature.<name>`` adds a feature, ``delta.minReaderVersion`` and ``delta.minWriterVersion`` upgrade the
    protocol, ``comment`` is the table's description.  Raises ``UnknownOptionError``, ``InvalidArgumentError`` or
    ``UnsupportedProtocolError``.
    """
    effects = parse_properties(properties)
    values = dict(effects.values)
    if CLUSTERING_COLUMNS in values:
        raise InvalidArgumentError(
            f"the table property {CLUSTERING_COLUMNS} is read-only: it lists the clustering columns",
            help="write ALTER TABLE ... CLUSTER BY (...)",
            property=CLUSTERING_COLUMNS,
            condition="DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        )
    description = values.pop(COMMENT, metadata.description)
    new = replace(metadata, configuration={**metadata.configuration, **values}, description=description)
    new = prepared(metadata, new, new_id=new_id)
    reader, writer = effects.reader or protocol.min_reader_version, effects.writer or protocol.min_writer_version
    if effects.reader is not None or effects.writer is not None:
        protocol = upgrade_protocol(protocol, reader, writer)
    for name in effects.features:
        protocol = with_feature(protocol, name)
    log = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in properties.items()}
    return MetadataChange(with_required(protocol, new), new, "SET TBLPROPERTIES", {"properties": logged_json(log)})


def unset_properties(
    protocol: Protocol, metadata: Metadata, keys: Iterable[str], *, new_id: Callable[[], str], if_exists: bool = False
) -> MetadataChange:
    """Remove table properties, so that their defaults apply.

    Raises ``InvalidArgumentError`` for a property that is not set, unless ``if_exists``.
    """
    unset = parse_keys(keys)
    missing = [k for k in unset if k not in metadata.configuration and k != COMMENT]
    if missing and not if_exists:
        raise InvalidArgumentError(
            f"table properties {', '.join(missing)} are not set",
            help="leave them out, or use IF EXISTS (if_exists=True)",
            condition="DELTA_UNSET_NON_EXISTENT_PROPERTY",
        )
    remaining = {k: v for k, v in metadata.configuration.items() if k not in unset}
    description = None if COMMENT in unset else metadata.description
    new = prepared(metadata, replace(metadata, configuration=remaining, description=description), new_id=new_id)
    parameters = {"properties": logged_json(unset), "ifExists": logged_json(if_exists)}
    return MetadataChange(with_required(protocol, new), new, "UNSET TBLPROPERTIES", parameters)


def prepared(before: Metadata | None, after: Metadata, *, new_id: Callable[[], str]) -> Metadata:
    """Metadata completed with what its properties require; ``before`` is ``None`` for a new table.

    Raises ``InvalidArgumentError`` for properties that do not fit the schema or the table's files.
    """
    after = with_needs(before, after)
    _check_stats_columns(before, after)
    check_reserved_names(before, after)
    if before is None or _opponent_of_manifests(before) is None:
        _check_manifests(after)
    if is_on(after.configuration, row_tracking.ENABLED):
        if is_on(after.configuration, row_tracking.SUSPENDED):
            raise InvalidArgumentError(
                f"{row_tracking.ENABLED} and {row_tracking.SUSPENDED} cannot both be true",
                help="set the other one to false in the same statement",
                condition="DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
            )
        names = {k: f"{prefix}{new_id()}" for k, prefix in ROW_ID_COLUMNS.items() if k not in after.configuration}
        after = replace(after, configuration={**after.configuration, **names})
    return after if before is None else change_mode(before, after, new_id=new_id)


def _check_stats_columns(before: Metadata | None, after: Metadata) -> None:
    value = after.configuration.get(STATS_COLUMNS, "")
    paths = [spelled(after.schema, path) for path in column_list(value)]
    if before is not None and before.configuration.get(STATS_COLUMNS) == value:
        return
    seen: set[Path] = set()
    for path in paths:
        type_ = type_at(after.schema, path)
        leaves = {leaf for leaf, _ in after.schema.leaves() if leaf[: len(path)] == path} or {path}
        wrong = condition = None
        if path[0] in after.partition_columns:
            wrong, condition = "is a partition column", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"
        elif not path[1:] and not _has_bounds(type_):
            wrong, condition = f"has the type {type_}", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"
        elif leaves & seen:
            wrong, condition = "is named twice", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"
        if wrong is not None:
            raise InvalidArgumentError(
                f"{STATS_COLUMNS} names column {format_path(path)}, which {wrong}",
                help="name columns with bounds: numbers, strings, dates or times, each once",
                column=format_path(path),
                condition=condition,
            )
        seen |= leaves


def _has_bounds(t: DataType) -> bool:
    return isinstance(t, StructType) or (isinstance(t, PrimitiveType) and t.traits.bounds is not None)


def _opponent_of_manifests(metadata: Metadata) -> str | None:
    """The property that prevents the symlink manifests of a table that enables them."""
    if not is_on(metadata.configuration, symlink_manifest.ENABLED):
        return None
    if is_on(metadata.configuration, DELETION_VECTORS):
        return DELETION_VECTORS
    return None if metadata.column_mapping_mode == "none" else MODE


def _check_manifests(metadata: Metadata) -> None:
    other = _opponent_of_manifests(metadata)
    if other is None:
        return
    vectors = other == DELETION_VECTORS
    raise InvalidArgumentError(
        f"{symlink_manifest.ENABLED} and {other} cannot be used together: readers of manifests do not support"
        f" {'deletion vectors' if vectors else 'column mapping'}",
        help="turn off one of them",
        condition="DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED."
        "PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION"
        if vectors
        else "DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING",
    )


def with_required(protocol: Protocol, metadata: Metadata) -> Protocol:
    """The protocol with the features that the metadata needs.

    Raises ``UnsupportedProtocolError`` for a feature that trilake cannot write.
    """
    for name in required(metadata):
        if not has_feature(protocol, name):
            with_feature(protocol, name)  # raises an error that names an unsupported feature
    return upgraded(protocol, metadata)


def cluster_by(
    protocol: Protocol, metadata: Metadata, columns: Sequence[PathLike], *, before: Sequence[Path]
) -> MetadataChange:
    """Replace the clustering columns ``before``; an empty list ends clustering.

    Raises ``InvalidArgumentError`` for a partitioned table, and for columns that cannot be clustering columns.
    """
    if metadata.partition_columns and columns:
        raise InvalidArgumentError(
            "a table can be partitioned or clustered, but not both",
            help=f"the table is partitioned by {', '.join(metadata.partition_columns)}",
            condition="DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED",
        )
    try:
        new = [spelled(metadata.schema, c) for c in columns]
    except SchemaMismatchError as e:
        e.context["condition"] = "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
        raise
    with stating({"COLUMN_ALREADY_EXISTS": "DELTA_DUPLICATE_COLUMNS_FOUND"}):
        value = chosen_clustering(metadata, new)
    parameters = {
        "oldClusteringColumns": ",".join(map(format_path, before)),
        "newClusteringColumns": ",".join(map(format_path, new)),
    }
    domains = {} if new == list(before) else {DOMAIN: value}
    features = [CLUSTERING] if new else []
    return MetadataChange(upgraded(protocol, metadata, features), metadata, "CLUSTER BY", parameters, domains=domains)


def add_constraint(
    protocol: Protocol, metadata: Metadata, name: str, expression: str, *, now: dt.datetime
) -> MetadataChange:
    """Add a CHECK constraint; every existing row must satisfy it.

    Raises ``InvalidArgumentError`` for an existing name, ``ExpressionError`` for an expression that is not a condition
    over the table's columns.
    """
    key = _constraint_key(name)
    if key in metadata.configuration:
        raise InvalidArgumentError(
            f"constraint {name} already exists: {metadata.configuration[key]}",
            help="drop that constraint first, or choose another name",
            constraint=name,
            condition="DELTA_CONSTRAINT_ALREADY_EXISTS",
        )
    parse_check("CHECK constraint", name, expression, metadata.schema, now)
    new = replace(metadata, configuration={**metadata.configuration, key: expression})
    condition = Condition("CHECK constraint", name, expression)
    parameters = {"name": name, "expr": expression}
    return MetadataChange(upgraded(protocol, new), new, "ADD CONSTRAINT", parameters, (condition,))


def drop_constraint(protocol: Protocol, metadata: Metadata, name: str, *, if_exists: bool = False) -> MetadataChange:
    """Remove a CHECK constraint.  Raises ``InvalidArgumentError`` for an unknown name, unless ``if_exists``."""
    key = next((k for k in metadata.configuration if k.lower() == _constraint_key(name)), None)
    if key is None:
        if if_exists:
            return MetadataChange(protocol, metadata, "DROP CONSTRAINT", {"name": name, "existed": "false"})
        there = sorted(k[len(PREFIX) :] for k in metadata.configuration if k.startswith(PREFIX))
        raise InvalidArgumentError(
            f"there is no constraint {name}",
            help=f"constraints are {', '.join(there)}" if there else "the table has no constraints",
            constraint=name,
            condition="DELTA_CONSTRAINT_DOES_NOT_EXIST",
        )
    expression = metadata.configuration[key]
    new = replace(metadata, configuration={k: v for k, v in metadata.configuration.items() if k != key})
    return MetadataChange(protocol, new, "DROP CONSTRAINT", {"name": name, "expr": expression, "existed": "true"})


def _constraint_key(name: str) -> str:
    if not name.strip():
        raise InvalidArgumentError("a constraint name must not be empty")
    return PREFIX + name.lower()


def raise_versions(protocol: Protocol, metadata: Metadata, reader: int, writer: int) -> MetadataChange:
    """Raise the protocol's versions; lower ones change nothing.  Raises ``InvalidArgumentError``."""
    new = upgrade_protocol(protocol, reader, writer)
    return MetadataChange(new, metadata, "UPGRADE PROTOCOL", {"newProtocol": logged_json(new.to_json())})
