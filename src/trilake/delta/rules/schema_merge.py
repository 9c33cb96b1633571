"""Schema evolution: the table's schema after rows of another schema are written.

``mergeSchema`` adds columns, including nested ones, and widens types if the table allows it; ``overwriteSchema``
replaces the table's schema with that of the rows.  All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID, mapped, max_column_id, reuse
from trilake.delta.protocol.features import upgraded
from trilake.delta.protocol.partitions import check_partition_columns
from trilake.delta.protocol.schema import (
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    all_nullable,
    paired,
    with_parts,
)
from trilake.delta.protocol.schema_edit import is_void, strip
from trilake.delta.protocol.sql_types import with_limits, without_limits
from trilake.delta.protocol.type_widening import (
    NO_WIDENING,
    AutomaticWidening,
    WideningMode,
    only_preview,
    record_changes,
    widened,
)
from trilake.delta.rules.defaults import columns_of_rows
from trilake.delta.rules.dependents import check_free_of_rules
from trilake.delta.rules.identity import identity_columns
from trilake.delta.rules.new_columns import check_columns
from trilake.delta.rules.store_assignment import check_assignable
from trilake.errors import InvalidArgumentError, SchemaMismatchError


def merge(
    table: StructType,
    rows: StructType,
    *,
    widening: AutomaticWidening = NO_WIDENING,
    converted: bool = False,
    uri: str | None = None,
) -> StructType:
    """Merge the schema of rows into the table's schema, matching columns by name, ignoring case.

    New columns and nested fields come last and are nullable.  A type becomes that of the rows if ``widening`` allows
    it; otherwise it stays, and the write rejects values that do not fit.  With ``converted``, values are cast before
    they are written, so flat types may differ.  A column of type void takes the type of the rows.  Raises
    ``SchemaMismatchError``, which shows both schemas.

    >>> from trilake.delta.protocol.schema import StructField as F
    >>> old = StructType((F("a", PrimitiveType("integer")),))
    >>> rows = StructType((F("A", PrimitiveType("long")), F("b", PrimitiveType("date"))))
    >>> str(merge(old, rows, widening=AutomaticWidening()))
    'struct<a:long,b:date>'
    """
    problems: list[str] = []
    limited = any(TYPE_STRING in f.metadata for f in (*table.fields, *rows.fields))
    merged = _merge_struct(with_limits(table), with_limits(rows), _Rules(widening, converted), "", problems)
    merged = without_limits(merged) if limited else merged
    if problems:
        raise SchemaMismatchError(
            f"the schemas cannot be merged: {'; '.join(problems[:10])}. Table: {table}. Rows: {rows}",
            help="cast or drop these columns, or replace the schema with overwriteSchema",
            file=uri,
            condition="DELTA_FAILED_TO_MERGE_FIELDS",
        )
    return merged


class _Rules(NamedTuple):
    widening: AutomaticWidening
    converted: bool


def _merge(table: DataType, rows: DataType, rules: _Rules, path: str, problems: list[str]) -> DataType:
    if isinstance(table, StructType) and isinstance(rows, StructType):
        return _merge_struct(table, rows, rules, path, problems)
    inside = paired(table, rows)
    if inside is not None:
        return with_parts(table, [_merge(a, b, rules, f"{path}{name}.", problems) for name, a, b in inside])
    if is_void(rows):
        return table
    if is_void(table):
        return all_nullable(rows)
    if rules.widening.allows(table, rows):
        return rows
    flat = isinstance(table, PrimitiveType) and isinstance(rows, PrimitiveType)
    if (rules.converted and flat) or _fits(rows, table):
        return table
    problems.append(f"column {path.rstrip('.')} is {rows}, but the table has {table}")
    return table


def _fits(rows: DataType, table: DataType) -> bool:
    """Whether values of one type may be stored as another; the write checks each value."""
    try:
        check_assignable(StructType((StructField("v", rows),)), StructType((StructField("v", table),)), uri="")
    except SchemaMismatchError:
        return False
    return True


def _merge_struct(table: StructType, rows: StructType, rules: _Rules, path: str, problems: list[str]) -> StructType:
    incoming: dict[str, StructField] = {}
    for f in rows.fields:
        other = incoming.setdefault(f.name.lower(), f)
        if other is not f:
            problems.append(f"the rows have two columns {path}{other.name} and {path}{f.name}")
    fields = []
    for f in table.fields:
        match = incoming.get(f.name.lower())
        fields.append(
            f if match is None else replace(f, type=_merge(f.type, match.type, rules, f"{path}{f.name}.", problems))
        )
    new = strip(StructType(tuple(f for f in incoming.values() if table.find(f.name) is None)))
    return StructType((*fields, *(replace(f, type=all_nullable(f.type), nullable=True) for f in new.fields)))


def merged_metadata(
    protocol: Protocol,
    metadata: Metadata,
    rows: StructType,
    *,
    version: int,
    widening: WideningMode = "always",
    converted: bool = False,
    uri: str | None = None,
    new_id: Callable[[], str],
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of a table after a write of rows with schema ``rows`` and ``mergeSchema``.

    If the table maps columns, new ones get ids and physical names.  Types are widened if the table and ``widening``
    allow that; the changes are recorded, and the protocol gets the features of new types.  ``version`` is the version
    to be committed; ``converted`` as in :func:`merge`.  Returns
    the given objects if nothing changes.  Raises ``SchemaMismatchError`` and ``InvalidArgumentError``.
    """
    table, rows = metadata.schema, columns_of_rows(rows, protocol.writer_features)
    schema = merge(table, rows, widening=AutomaticWidening.of(metadata, widening), converted=converted, uri=uri)
    if schema == table:
        return protocol, metadata
    _check_widened(metadata, schema)
    noted = version if only_preview(protocol) else None
    schema = record_changes(table, schema, version=noted)
    new = mapped(replace(metadata, schema_string=schema.json()), new_id=new_id)
    check_columns(metadata, new)
    return upgraded(protocol, new), new


def _check_widened(metadata: Metadata, schema: StructType) -> None:
    """Reject wider types of columns that rules use: an expression may have another value for the wider type, and then
    existing rows would violate the rule."""
    identity = {c.name for c in identity_columns(metadata.schema)}
    for column, old, new in widened(metadata.schema, schema):
        if column[0] in identity:
            raise InvalidArgumentError(
                f"the type of identity column {column[0]} cannot change from {old} to {new}",
                help="cast the new rows",
                column=column[0],
                condition="DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED",
            )
        check_free_of_rules(
            metadata,
            column,
            f"widen {old} to {new} in",
            conflict="DATA_TYPE_MISMATCH",
            help="cast the new rows, or drop these first",
        )


def overwritten_metadata(
    protocol: Protocol,
    metadata: Metadata,
    rows: StructType,
    *,
    partition_columns: Sequence[str] | None = None,
    uri: str | None = None,
    new_id: Callable[[], str],
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of a table whose rows and schema are replaced (``overwriteSchema``).

    Columns that keep name and type keep ids, physical names and comments.  The history of widened types ends, since no
    older file stays.  Partition columns stay unless ``partition_columns`` is given.

    Raises ``SchemaMismatchError`` if a partition column is missing, ``InvalidArgumentError`` for invalid columns or
    partition columns.
    """
    partitions = metadata.partition_columns if partition_columns is None else tuple(partition_columns)
    missing = [c for c in partitions if rows.find(c) is None]
    if missing and partition_columns is None:
        raise SchemaMismatchError(
            f"the new schema lacks the partition columns {', '.join(missing)}. Table: {metadata.schema}. Rows: {rows}",
            help="add those columns to the rows, or pass new partition columns",
            file=uri,
            condition="DELTA_PARTITION_COLUMN_NOT_FOUND",
        )
    if not rows.fields:
        raise InvalidArgumentError("a table needs at least one column", file=uri, condition="DELTA_EMPTY_DATA")
    old, rows = metadata.schema, columns_of_rows(rows, protocol.writer_features)
    fields = []
    for f in strip(rows).fields:
        there = old.find(f.name)
        comment = {} if there is None or "comment" not in there.metadata else {"comment": there.metadata["comment"]}
        fields.append(replace(f, type=all_nullable(f.type), nullable=True, metadata={**comment, **f.metadata}))
    schema = StructType(tuple(fields))
    configuration = dict(metadata.configuration)
    if metadata.column_mapping_mode != "none":
        configuration[MAX_COLUMN_ID] = str(max_column_id(metadata))
        schema = reuse(schema, old)
    new = replace(
        metadata,
        schema_string=schema.json(),
        partition_columns=check_partition_columns(schema, partitions),
        configuration=configuration,
    )
    new = mapped(new, new_id=new_id)
    if new.schema_string != metadata.schema_string:
        check_columns(metadata, new)
    return upgraded(protocol, new), new
