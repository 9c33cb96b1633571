"""Map Arrow's leaf types to Delta types, and refuse extension types whose meaning would be lost.

An extension type gives meaning to a storage type.  Most can be dropped: a JSON value is a string, a tensor is a list of
numbers.  But a pandas period, a count of months since 1970, would become a plain number.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.errors import SchemaMismatchError

#: How other libraries mark a column of variants, for which Arrow has no type.
VARIANT_EXTENSION = "arrow.parquet.variant"
_CONDITION = "DELTA_UNSUPPORTED_DATA_TYPES"
#: Help for extension types whose storage values mean something else.
_MEANINGS = {
    "pandas.period": "cast the column, e.g. with .dt.to_timestamp() or to string",
    "pandas.interval": "keep the two ends in columns of their own",
    "arrow.bool8": "cast the column to bool",
    "arrow.opaque": "cast the column before writing, e.g. to string",
}
_BY_CHECK: list[tuple[Any, str]] = [
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_int64, "long"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int16, "short"),
    (pa.types.is_int8, "byte"),
    (pa.types.is_uint8, "short"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_uint64, "decimal(20,0)"),
    (pa.types.is_float16, "float"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_date, "date"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_null, "void"),
]


def primitive_name(t: pa.DataType, path: str) -> str:
    """The Delta type for a leaf type of Arrow.

    ``path`` is the column, for the ``SchemaMismatchError`` of a type that Delta lacks.

    >>> primitive_name(pa.uint64(), "n")
    'decimal(20,0)'
    """
    if pa.types.is_decimal(t):
        if t.precision > 38 or t.scale < 0:
            raise SchemaMismatchError(
                f"{t} does not fit a Delta decimal (precision 38, scale >= 0)", column=path, condition=_CONDITION
            )
        return f"decimal({t.precision},{t.scale})"
    if pa.types.is_timestamp(t):
        return "timestamp" if t.tz is not None else "timestamp_ntz"
    for check, name in _BY_CHECK:
        if check(t):
            return name
    raise SchemaMismatchError(
        f"Delta has no type for Arrow's {t}",
        help="cast the column before writing, e.g. to long or string",
        column=path,
        condition=_CONDITION,
    )


def is_variant(field: pa.Field, path: str) -> bool:
    """Whether a field is marked as a variant, as DuckDB does.

    Raises ``SchemaMismatchError`` for other extension types whose values would change their meaning, and for
    shredded variants.
    """
    name = _extension(field)
    if name in _MEANINGS:
        raise SchemaMismatchError(
            f"{_shown(field.type, name)} has no Delta type, and its stored values say something else",
            help=_MEANINGS[name],
            column=path,
            condition=_CONDITION,
        )
    if name != VARIANT_EXTENSION:
        return False
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_struct(kind) and {f.name for f in kind} == {"value", "metadata"}:
        return True
    raise SchemaMismatchError(
        f"the variants are stored as {kind}: their parts are columns (shredded)",
        help="hand them over as structs of value and metadata",
        column=path,
        condition=_CONDITION,
    )


def _extension(field: pa.Field) -> str | None:
    """The name of a field's extension type, from field metadata where the type is not registered with Arrow."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    noted = (field.metadata or {}).get(b"ARROW:extension:name")
    return None if noted is None else noted.decode("utf-8", "replace")


def _shown(t: pa.DataType, name: str) -> str:
    opaque = name == "arrow.opaque" and hasattr(t, "vendor_name")
    return f"{name} of {t.vendor_name} ({t.type_name})" if opaque else name
