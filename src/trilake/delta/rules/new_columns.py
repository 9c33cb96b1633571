"""Rules for new columns."""

from __future__ import annotations

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import check_names
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import StructType, check_distinct, types_in
from trilake.delta.protocol.schema_edit import check_storable, nested_fields
from trilake.delta.protocol.sql_types import check_collation
from trilake.delta.protocol.table_features.row_tracking import ID_COLUMN, VERSION_COLUMN
from trilake.errors import InvalidArgumentError

#: Field metadata in which Spark stores a collation, such as ``{"name": "spark.UTF8_LCASE"}``; readers without
#: collations may read such a table and compare bytes.
COLLATIONS = "__COLLATIONS"


def check_columns(before: Metadata | None, after: Metadata) -> None:
    """Reject reserved or duplicate column names, types without values, and collations.

    Parquet files and the change data feed reserve names.  ``before`` is the table's metadata before its columns change;
    ``None`` for a new table.  Raises ``InvalidArgumentError`` and ``SchemaMismatchError``.
    """
    if before is None or before.schema != after.schema:
        check_fields(after.schema, None if before is None else before.schema)
        check_storable(after.schema, None if before is None else before.schema)
    check_names(after.schema, after.column_mapping_mode)
    check_reserved_names(before, after)
    check_collations(after.schema)


def check_fields(after: StructType, before: StructType | None = None) -> None:
    """Raise ``SchemaMismatchError`` for fields of a struct whose names differ only in case.

    Fields that the table already has are allowed.
    """
    there = [] if before is None else [t.names for _, t in types_in(before) if isinstance(t, StructType)]
    for path, t in types_in(after):
        if isinstance(t, StructType) and t.names not in there:
            check_distinct([".".join((*path, name)) for name in t.names])


def check_collations(schema: StructType) -> None:
    """Raise ``InvalidArgumentError`` for a column with a collation, which trilake does not write."""
    for f in nested_fields(schema):
        for name in dict(f.metadata.get(COLLATIONS) or {}).values():
            check_collation(str(name).rpartition(".")[2], f.name)


CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_ENABLED = "delta.enableChangeDataFeed"


def check_reserved_names(before: Metadata | None, after: Metadata) -> None:
    """Raise ``InvalidArgumentError`` for columns with names that the change data feed or row tracking uses.

    ``before`` is the table's metadata, ``None`` for a new table.
    """
    own = {after.configuration[key].lower() for key in (ID_COLUMN, VERSION_COLUMN) if key in after.configuration}
    for f in after.schema.fields if own else ():
        if own & {f.name.lower(), f.physical_name.lower()}:
            raise InvalidArgumentError(
                f"the files of the table store row ids or row commit versions in a column {f.name}",
                help="choose another name",
                column=f.name,
                condition="DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
            )
    if not is_on(after.configuration, _ENABLED):
        return
    conflicts = [c for c in CHANGE_COLUMNS if after.schema.find(c) is not None]
    if not conflicts:
        return
    if before is not None and is_on(before.configuration, _ENABLED):
        raise InvalidArgumentError(
            f"the column names {', '.join(conflicts)} are reserved in a table with a change data feed",
            help="rename these columns, or set delta.enableChangeDataFeed to false first",
            condition="RESERVED_CDC_COLUMNS_ON_WRITE",
        )
    raise InvalidArgumentError(
        "the change data feed cannot be enabled, because the table has columns with reserved names:"
        f" {', '.join(conflicts)}",
        help="rename these columns first",
        condition="DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
    )
