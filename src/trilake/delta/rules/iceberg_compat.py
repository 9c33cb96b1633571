"""Check that commits follow the rules of Iceberg compatibility.

Protocol: *Writer Requirements for IcebergCompatV1*, *V2* and, among the protocol's proposals, *V3*.  Pure functions of
metadata, protocol and actions; an error names the broken rule.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import MODE
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.iceberg import ENABLED, TAG, UNIFORM, compat_versions, is_uniform, without_uniform
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructType, fields_in, types_in
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.protocol.table_features.deletion_vectors import KEY as DELETION_VECTORS
from trilake.delta.protocol.table_features.row_tracking import KEY as ROW_TRACKING
from trilake.delta.protocol.type_widening import iceberg_widens, type_changes
from trilake.delta.rules.defaults import default_expression
from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.sql.constants import simple_constant

_CONDITION = "DELTA_ICEBERG_COMPAT_VIOLATION"

#: The time for calls such as current_date(), which are not literals.
_NO_TIME = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: One bit per file.
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def with_needs(before: Metadata | None, after: Metadata) -> Metadata:
    """Metadata with the properties that the compatibility needs, unless they are set.

    Turns column mapping on for new tables only, and row tracking, which V3 needs, for all.  If the compatibility is
    turned off, Iceberg metadata is, too, as in delta-spark.
    """
    versions = compat_versions(after.configuration)
    if before is not None and compat_versions(before.configuration) and is_uniform(before.configuration):
        after = without_uniform(after)
    needs = {MODE: "name"} if versions and before is None else {}
    needs |= {ROW_TRACKING: "true"} if 3 in versions else {}
    lacking = {k: v for k, v in needs.items() if k not in after.configuration}
    return replace(after, configuration={**after.configuration, **lacking}) if lacking else after


def check_compatible(before: Metadata | None, after: Metadata, protocol: Protocol) -> None:
    """Raise ``InvalidArgumentError`` if Iceberg compatibility is on and the metadata breaks one of its rules.

    ``before`` is the table's metadata, ``None`` for a new table.
    """
    versions = compat_versions(after.configuration)
    if len(versions) > 1:
        raise InvalidArgumentError(
            f"icebergCompatV{versions[0]} and icebergCompatV{versions[1]} cannot both be enabled",
            help=f"set {' or '.join(ENABLED[v] for v in versions)} to false",
            condition=f"{_CONDITION}.VERSION_MUTUAL_EXCLUSIVE",
        )
    if not versions and is_uniform(after.configuration):
        raise InvalidArgumentError(
            f"{UNIFORM} is 'iceberg', which requires icebergCompatV1 or V2",
            help=f"set {ENABLED[2]} to true as well",
            condition="DELTA_UNIVERSAL_FORMAT_VIOLATION",
        )
    for version in versions:
        for violations in (_property_violations, _column_violations):
            for violation in violations(version, before, after, protocol):
                raise violation


def check_files(metadata: Metadata, adds: Iterable[Mapping[str, Any]]) -> None:
    """Raise ``InvalidArgumentError`` if Iceberg compatibility is on and an added file breaks its rules."""
    versions = compat_versions(metadata.configuration)
    files = list(adds) if versions else []
    for version in versions:
        stats = orjson.loads("[" + ",".join(a.get("stats") or "null" for a in files) + "]")
        for add, record_count in zip(files, stats, strict=True):
            if not isinstance(record_count, Mapping) or type(record_count.get("numRecords")) is not int:
                raise _violated(
                    version,
                    f"numRecords in the statistics of every file, but {add['path']!r} has none",
                    "write the rows with trilake, or compute statistics (ANALYZE TABLE ... COMPUTE DELTA STATISTICS)",
                )
            if version < 3 and add.get("deletionVector") is not None:
                raise _violated(
                    version,
                    f"files without deletion vectors, but {add['path']!r} has one",
                    "purge them first (REORG TABLE ... APPLY (PURGE))",
                    "DELETION_VECTORS_NOT_PURGED",
                )


def _violated(version: int, what: str, help: str, rule: str | None = None, **where: Any) -> InvalidArgumentError:
    condition = f"{_CONDITION}.{rule}" if rule else _CONDITION
    return InvalidArgumentError(f"icebergCompatV{version} requires {what}", help=help, condition=condition, **where)


def _property_violations(
    version: int, before: Metadata | None, after: Metadata, protocol: Protocol
) -> Iterator[InvalidArgumentError]:
    if after.provider.lower() != "parquet":
        yield _violated(
            version, f"Parquet files, but the table's files are {after.provider}", "use a table with Parquet files"
        )
    if after.column_mapping_mode not in ("name", "id"):
        yield _violated(
            version,
            f"column mapping: expected {MODE} 'name' or 'id', got {after.column_mapping_mode!r}",
            f"set {MODE} to 'name' as well",
            "WRONG_REQUIRED_TABLE_PROPERTY",
            property=MODE,
        )
    if version == 3 and not is_on(after.configuration, ROW_TRACKING):
        yield _violated(
            version,
            f"row tracking: expected {ROW_TRACKING} 'true', got {after.configuration.get(ROW_TRACKING)!r}",
            f"set {ROW_TRACKING} to 'true' as well",
            "WRONG_REQUIRED_TABLE_PROPERTY",
            property=ROW_TRACKING,
        )
    if version < 3 and has_feature(protocol, "deletionVectors"):
        what, rule = "a table without deletion vectors, but", "DELETION_VECTORS_SHOULD_BE_DISABLED"
        if is_on(after.configuration, DELETION_VECTORS):
            help = f"set {DELETION_VECTORS} to 'false' and purge the table"
            yield _violated(version, f"{what} {DELETION_VECTORS} is 'true'", help, rule)
        elif version == 1:
            help = "drop that feature first, or use icebergCompatV2"
            yield _violated(version, f"{what} the table has the feature deletionVectors", help, rule)


def _column_violations(
    version: int, before: Metadata | None, after: Metadata, protocol: Protocol
) -> Iterator[InvalidArgumentError]:
    for path, t in _column_types(after):
        if not _allowed(version, t):
            yield _violated(
                version,
                f"columns of types that Iceberg supports, but column {path} has type {t}",
                "leave the column out, or use icebergCompatV2, which allows arrays and maps"
                if isinstance(t, ArrayType | MapType)
                else "cast or leave out the column",
                "UNSUPPORTED_DATA_TYPE",
                column=path,
            )
    if before is not None and before.partition_columns and before.partition_columns != after.partition_columns:
        yield _violated(
            version,
            f"unchanged partition columns: expected {', '.join(before.partition_columns)}, got"
            f" {', '.join(after.partition_columns) or 'none'}",
            f"partition by the same columns, or set {ENABLED[version]} to false first",
            "REPLACE_TABLE_CHANGE_PARTITION_NAMES",
        )
    for names, f in fields_in(after.schema) if has_feature(protocol, "typeWidening") else ():
        for noted in type_changes(f):
            old, new, path = str(noted.get("fromType")), str(noted.get("toType")), ".".join(names)
            if not iceberg_widens(old, new):
                yield _violated(
                    version,
                    f"type changes that Iceberg supports, but column {path} was changed from {old} to {new}",
                    "copy the rows into a new table",
                    "UNSUPPORTED_TYPE_WIDENING",
                    column=path,
                )
    for f in nested_fields(after.schema) if version == 3 else ():
        sql = default_expression(f)
        if sql is not None and not _is_literal(sql):
            yield _violated(
                version,
                f"defaults that are literals, but the default of column {f.name} is {sql}",
                "use a literal, or drop the default",
                column=f.name,
            )


def _column_types(metadata: Metadata) -> list[tuple[str, DataType]]:
    return [(".".join(path), t) for path, t in types_in(metadata.schema) if path]


def _allowed(version: int, t: DataType) -> bool:
    if isinstance(t, PrimitiveType):
        return version in t.traits.iceberg
    return version > 1 or isinstance(t, StructType)


def _is_literal(sql: str) -> bool:
    """Whether SQL is a literal.

    >>> _is_literal("-1"), _is_literal("1 + 1"), _is_literal("current_date()")
    (True, False, False)
    """
    from trilake.expr.sql.parse import parse_tree  # late, because it loads sqlglot's dialects, which few commits need

    try:
        node = parse_tree(sql)
        calls = (exp.CurrentDate, exp.CurrentTimestamp, exp.Anonymous)
        return not isinstance(node, calls) and simple_constant(node, lambda: _NO_TIME) is not None
    except FilterError:
        return False


def unfit_files(version: int, adds: pa.Table) -> tuple[Mask, Mask]:
    """Which files of a snapshot were not written for the compatibility, and which ones have deletion vectors."""
    tags = pc.map_lookup(adds["tags"], pa.scalar(TAG), "first") if adds.num_rows else pa.array([], pa.string())
    fitting = pa.array([str(v) for v in ENABLED if v >= min(version, 2)])
    vectors = np.asarray(pc.is_valid(adds["deletionVector"]), dtype=np.bool_)
    return ~np.asarray(pc.is_in(tags, value_set=fitting), dtype=np.bool_), vectors


def check_old_files(version: int, metadata: Metadata, adds: pa.Table) -> None:
    """Raise ``InvalidArgumentError`` if the compatibility is turned on although existing files do not fit it."""
    others, vectors = unfit_files(version, adds)
    number, reason = int(others.sum()), None
    types = [t for _, t in _column_types(metadata)]
    if version == 1:
        reason = "do not contain partition columns" if metadata.partition_columns else None
    elif any(isinstance(t, ArrayType | MapType) for t in types):
        reason = "have no field ids inside arrays and maps"
    elif any(isinstance(t, PrimitiveType) and t.name.startswith("timestamp") for t in types):
        reason = "may contain INT96 timestamps"
    if version < 3 and vectors.any():
        number, reason = int(vectors.sum()), "have deletion vectors"
    if number and reason is not None:
        raise _violated(
            version,
            f"files written with this feature, but {number} of {adds.num_rows} {reason}",
            "rewrite them while enabling the feature: REORG TABLE ... APPLY (UPGRADE UNIFORM"
            f" (ICEBERG_COMPAT_VERSION = {version}))",
            "CHANGE_VERSION_NEED_REWRITE",
        )
