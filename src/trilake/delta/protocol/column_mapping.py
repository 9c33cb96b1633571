"""Column mapping: ids and physical names of columns, and rows under those names.

Protocol: *Column Mapping*.  Every column, including nested ones, has a permanent id and physical name.  Files,
statistics and partition values use these, so that the display name can change.  Elements of arrays, and keys and values
of maps, have neither, except ids in tables for Iceberg readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from trilake.common.arrow_types import parts as arrow_parts
from trilake.common.arrow_types import with_parts as arrow_with_parts
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.iceberg import needs_nested_ids
from trilake.delta.protocol.schema import (
    COLUMN_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    fields_in,
    paired,
    parts,
    with_parts,
)
from trilake.delta.protocol.schema_edit import each_field, nested_fields, strip
from trilake.errors import CorruptLogError, InvalidArgumentError, UnsupportedProtocolError

MODE = "delta.columnMapping.mode"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
MODES = ("none", "name", "id")
FIELD_ID = "PARQUET:field_id"
#: Characters that old readers cannot handle in Parquet column names; column mapping allows them.
FORBIDDEN = " ,;{}()\n\t="

_ENABLE = f"enable column mapping first: set the table property {MODE} to 'name'"


def parse_mode(value: str) -> str:
    """Parse a column mapping mode, ignoring case.  Raises ``InvalidArgumentError``.

    >>> parse_mode("Name")
    'name'
    """
    mode = value.strip().lower()
    if mode not in MODES:
        raise InvalidArgumentError(f"{MODE} must be one of {', '.join(MODES)}, got {value!r}")
    return mode


def check_mode(metadata: Metadata, *, uri: str, version: int) -> None:
    """Reject an unknown mode.  Raises ``UnsupportedProtocolError``."""
    mode = metadata.column_mapping_mode
    if mode not in MODES:
        message = f"column mapping mode {mode!r} is not supported"
        help = f"modes are {', '.join(MODES)}: set {MODE} with the engine that set it, or read an older version"
        raise UnsupportedProtocolError(message, help=help, file=uri, version=version)


def max_column_id(metadata: Metadata) -> int:
    """The highest id ever assigned: the table property, or the highest id in the schema if that is greater."""
    value = metadata.configuration.get(MAX_COLUMN_ID, "0")
    try:
        highest = int(value)
    except ValueError as e:
        raise CorruptLogError(f"the table property {MAX_COLUMN_ID} is {value!r}, which is not a number") from e
    return max([highest, _highest(metadata.schema)])


def _highest(schema: StructType) -> int:
    fields = nested_fields(schema)
    return max([0, *(f.column_id or 0 for f in fields), *(i for f in fields for i in nested_ids(f).values())])


def nested_ids(field: StructField) -> dict[str, int]:
    """The ids of elements, keys and values inside a field, by their paths in files.  Raises ``CorruptLogError``."""
    ids = field.metadata.get(NESTED_IDS)
    if ids is None:
        return {}
    if not isinstance(ids, Mapping) or not all(type(i) is int for i in ids.values()):
        raise CorruptLogError(
            f"column {field.name!r} has {NESTED_IDS} that are not numbers by path: {str(ids)[:80]!r}", column=field.name
        )
    return dict(ids)


def _nested_paths(t: DataType, path: str) -> Iterator[str]:
    """The paths of array elements, and of keys and values of maps, down to the next structs."""
    if not isinstance(t, StructType):
        for name, inner in parts(t):
            yield f"{path}.{name}"
            yield from _nested_paths(inner, f"{path}.{name}")


def assign(
    schema: StructType,
    *,
    mode: str,
    max_id: int = 0,
    existing: bool = False,
    nested: bool = False,
    new_id: Callable[[], str],
) -> tuple[StructType, int]:
    """Assign ids above ``max_id`` and physical names to columns without them; return the schema and the highest id.

    Mode ``none`` changes nothing.  With ``existing`` files, display names become the physical names.  With ``nested``,
    elements, keys and values get ids.  Raises ``CorruptLogError`` if two columns have the same id or physical name.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> schema, top = assign(StructType((StructField("a", PrimitiveType("long")),)), mode="name", new_id=lambda: "0-1")
    >>> top, schema.field("a").physical_name
    (1, 'col-0-1')
    """
    if parse_mode(mode) == "none":
        return schema, max_id

    top = max(max_id, _highest(schema))

    def give(field: StructField) -> StructField:
        nonlocal top
        metadata: dict[str, Any] = dict(field.metadata)
        if field.column_id is None:
            top += 1
            metadata[COLUMN_ID] = top
        if not isinstance(metadata.get(PHYSICAL_NAME), str):
            metadata[PHYSICAL_NAME] = field.name if existing else f"col-{new_id()}"
        paths = list(_nested_paths(field.type, metadata[PHYSICAL_NAME])) if nested else []
        if paths:
            before = nested_ids(field)
            metadata[NESTED_IDS] = {p: before.get(p) or (top := top + 1) for p in paths}
        return replace(field, metadata=metadata)

    mapped = each_field(schema, give)
    _check_unique(mapped)
    return mapped, top


def _check_unique(schema: StructType) -> None:
    by_id: dict[int, str] = {}
    by_name: dict[tuple[str, ...], str] = {}
    renamed = each_field(schema, lambda f: replace(f, name=f.physical_name))
    for (names, f), (physical, _) in zip(fields_in(schema), fields_in(renamed), strict=True):
        assert f.column_id is not None
        path = ".".join(names)
        for what, first in (
            (f"the id {f.column_id}", by_id.setdefault(f.column_id, path)),
            (f"the physical name {f.physical_name!r}", by_name.setdefault(physical, path)),
        ):
            if first != path:
                raise CorruptLogError(
                    f"columns {first} and {path} both have {what}",
                    help="the column mapping in the schema is damaged: read an older version, or restore the log"
                    " from a backup",
                    column=path,
                )


def mapped(metadata: Metadata, *, existing: bool = False, new_id: Callable[[], str]) -> Metadata:
    """The metadata with every column mapped according to its mode, and the highest id updated.

    Set ``existing`` if unmapped columns have data under their display names, as when column mapping is enabled.
    """
    mode = parse_mode(metadata.column_mapping_mode)
    if mode == "none":
        return metadata
    schema, top = assign(
        metadata.schema,
        mode=mode,
        max_id=max_column_id(metadata),
        existing=existing,
        nested=needs_nested_ids(metadata.configuration),
        new_id=new_id,
    )
    configuration = {**metadata.configuration, MAX_COLUMN_ID: str(top)}
    if schema == metadata.schema and configuration == metadata.configuration:
        return metadata
    return replace(metadata, schema_string=schema.json(), configuration=configuration)


def reuse(new: StructType, old: StructType) -> StructType:
    """``new`` with the ids and physical names of the columns in ``old`` that have the same name and type."""
    fields = []
    for f in new.fields:
        before = old.find(f.name)
        if before is not None and str(before.type) == str(f.type):
            ids = {k: before.metadata[k] for k in (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS) if k in before.metadata}
            f = replace(f, type=_reuse_type(f.type, before.type), metadata={**f.metadata, **ids})
        fields.append(f)
    return StructType(tuple(fields))


def _reuse_type(new: DataType, old: DataType) -> DataType:
    if isinstance(new, StructType) and isinstance(old, StructType):
        return reuse(new, old)
    return with_parts(new, [_reuse_type(a, b) for _, a, b in paired(new, old) or ()]) if paired(new, old) else new


# --- changes that a mode allows --------------------------------------------------------------------------------------


def change_mode(before: Metadata, after: Metadata, *, new_id: Callable[[], str]) -> Metadata:
    """``after`` completed for a change of the mapping mode of a table with data; ``before`` is its current metadata.

    Raises ``InvalidArgumentError`` for a change that would make existing files unreadable.
    """
    old, new = parse_mode(before.column_mapping_mode), parse_mode(after.column_mapping_mode)
    if old == new:
        return mapped(after, new_id=new_id)
    if (old, new) != ("none", "name"):
        hint = {
            "none": "set the property with trilake.alter(...) or ALTER TABLE, which rewrite the files",
            "id": "mode 'id' can be chosen only when a table is created, since its files must have field ids",
            "name": "leave the mode unchanged",
        }
        message = f"{MODE} cannot be changed from {old!r} to {new!r}"
        raise InvalidArgumentError(message, help=hint[new], condition="DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE")
    # Physical names of an earlier mapping do not apply to files written without one.
    bare = replace(after, schema_string=strip(after.schema).json())
    return mapped(bare, existing=True, new_id=new_id)


def check_can_rename(metadata: Metadata, what: Literal["rename", "drop"]) -> None:
    """Raise ``InvalidArgumentError`` for a column to rename or drop if files use display names."""
    if metadata.column_mapping_mode == "none":
        message = f"cannot {what} a column without column mapping: the files use its name"
        raise InvalidArgumentError(message, help=_ENABLE, condition=f"DELTA_UNSUPPORTED_{what.upper()}_COLUMN")


def check_names(schema: StructType, mode: str) -> None:
    """Reject column names that Parquet files must not have.  Raises ``InvalidArgumentError``.

    >>> check_names(StructType(()), "none")
    """
    if mode != "none":
        return
    for f in nested_fields(schema):
        forbidden = sorted(set(f.name) & set(FORBIDDEN))
        if forbidden:
            raise InvalidArgumentError(
                f"column name {f.name!r} contains {''.join(forbidden)!r}, which Parquet files do not allow",
                help=f"rename it, or {_ENABLE}",
                column=f.name,
                condition="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            )


# --- physical forms --------------------------------------------------------------------------------------------------


def physical_schema(schema: StructType, mode: str) -> pa.Schema:
    """The Arrow schema of a data file: physical names at every depth, and ``PARQUET:field_id`` for columns with ids.

    With mode ``"none"`` names are the display names.  NOT NULL fields inside nullable structs are nullable in the
    file: Arrow's writer would reject a null struct.
    """
    fields = zip(schema.to_arrow_schema(), schema.fields, strict=True)
    return pa.schema([_physical_field(a, f, mode) for a, f in fields])


def to_physical(table: pa.Table, schema: StructType, mode: str) -> pa.Table:
    """Rename the columns of rows to those of :func:`physical_schema`, without copying a value.

    ``table`` may have some of the schema's columns, in any order; unknown columns, such as ``_change_type``, stay.
    Raises ``InvalidArgumentError`` if a column's nested fields differ from the schema.
    """
    by_name: Mapping[str, StructField] = {f.name: f for f in schema.fields}
    fields = [_physical_field(a, by_name[a.name], mode) if a.name in by_name else a for a in table.schema]
    renamed = pa.schema(fields)
    if renamed.equals(table.schema, check_metadata=True):
        return table
    return relabelled(table, renamed)


def relabelled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same buffers with another schema of the same layout: other names and nullability."""
    return pa.Table.from_batches([pa.record_batch(_Relabelled(b, schema)) for b in table.to_batches()], schema)


class _Relabelled:
    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self.batch, self.schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.schema.__arrow_c_schema__(), self.batch.__arrow_c_array__()[1]


def _physical_field(arrow: pa.Field, field: StructField, mode: str, absent: bool = False) -> pa.Field:
    """The field in a file; ``absent`` indicates whether a struct around it may be null."""
    ids = {} if mode == "none" else nested_ids(field)

    def stored(arrow: pa.DataType, t: DataType, path: str, nullable: bool) -> pa.DataType:
        """The Arrow type with physical names; everything else stays."""
        inside = arrow_parts(arrow)
        if isinstance(t, PrimitiveType):
            return arrow
        if isinstance(t, StructType) and pa.types.is_struct(arrow) and [f.name for f in inside] == t.names:
            return pa.struct([_physical_field(a, f, mode, nullable) for a, f in zip(inside, t.fields, strict=True)])
        if (isinstance(t, ArrayType) and pa.types.is_list(arrow)) or (
            isinstance(t, MapType) and pa.types.is_map(arrow)
        ):
            return arrow_with_parts(arrow, [part(a, *p, path) for a, p in zip(inside, parts(t), strict=True)])
        raise InvalidArgumentError(
            f"the rows have type {arrow}, but the table has {t}",
            help="convert the rows to the table's schema first",
            column=field.name + path.removeprefix(field.physical_name),
        )

    def part(arrow: pa.Field, name: str, t: DataType, above: str) -> pa.Field:
        """An element, key or value in a file."""
        path = f"{above}.{name}"
        inner = arrow.with_type(stored(arrow.type, t, path, name != "key" and arrow.nullable))
        return inner.with_metadata({FIELD_ID: str(ids[path])}) if path in ids else inner

    nullable = arrow.nullable or absent
    kind = stored(arrow.type, field.type, field.physical_name, nullable)
    if mode == "none":
        return pa.field(arrow.name, kind, nullable)
    own_id = None if field.column_id is None else {FIELD_ID: str(field.column_id)}
    return pa.field(field.physical_name, kind, nullable, own_id)
