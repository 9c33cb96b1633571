"""Map Arrow's leaf types to Delta types, and reject extension types whose meaning would be lost.

Most extension types can be read as their storage types: JSON as strings, tensors as lists of numbers.  But a pandas
period, a count of months since 1970, would become a plain number.

Also here: names of spatial types, and which metadata of a field belongs to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trilake.delta.protocol.primitives import PRIMITIVES
from trilake.errors import SchemaMismatchError

#: Markers of variant columns by other libraries, since Arrow has no variant type.
VARIANT_EXTENSION = "arrow.parquet.variant"
_CONDITION = "DELTA_UNSUPPORTED_DATA_TYPES"
#: Help for extension types whose storage values mean something else.
_MEANINGS = {
    "pandas.period": "cast the column, e.g. with .dt.to_timestamp() or to string",
    "pandas.interval": "keep the two ends in separate columns",
    "arrow.bool8": "cast the column to bool",
    "arrow.opaque": "cast the column before writing, e.g. to string",
}
_NAMES = {t: row.name for row in PRIMITIVES.values() if not row.marked for t in (row.arrow, *row.also_arrow)}
_NAMES[pa.uint64()] = "decimal(20,0)"


def primitive_name(t: pa.DataType, path: str) -> str:
    """The Delta type for a leaf type of Arrow.  Raises ``SchemaMismatchError``, which names the column ``path``.

    >>> primitive_name(pa.uint64(), "n")
    'decimal(20,0)'
    """
    if pa.types.is_decimal(t):
        if t.precision > 38 or t.scale < 0:
            raise SchemaMismatchError(
                f"{t} does not fit a Delta decimal (precision 38, scale >= 0)", column=path, condition=_CONDITION
            )
        return f"decimal({t.precision},{t.scale})"
    if pa.types.is_timestamp(t):  # of any unit
        return "timestamp" if t.tz is not None else "timestamp_ntz"
    if (name := "binary" if pa.types.is_fixed_size_binary(t) else _NAMES.get(t)) is not None:
        return name
    message = f"Delta does not support the Arrow type {t}"
    help = "cast the column before writing, e.g. to long or string"
    raise SchemaMismatchError(message, help=help, column=path, condition=_CONDITION)


def is_variant(field: pa.Field, path: str) -> bool:
    """Whether a field is marked as a variant, as DuckDB does.

    Raises ``SchemaMismatchError`` for shredded variants, and extension types whose values would change their meaning.
    """
    name = _extension(field)
    if name in _MEANINGS:
        opaque = name == "arrow.opaque" and hasattr(field.type, "vendor_name")
        shown = f"{name} of {field.type.vendor_name} ({field.type.type_name})" if opaque else name
        message = f"{shown} has no Delta type, and its storage values would be misread without it"
        raise SchemaMismatchError(message, help=_MEANINGS[name], column=path, condition=_CONDITION)
    if name != VARIANT_EXTENSION:
        return False
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_struct(kind) and {f.name for f in kind} == {"value", "metadata"}:
        return True
    message = f"shredded variants are not supported: {kind}"
    help = "pass structs with the fields value and metadata"
    raise SchemaMismatchError(message, help=help, column=path, condition=_CONDITION)


def _extension(field: pa.Field) -> str | None:
    """The name of a field's extension type; from field metadata if the type is not registered with Arrow."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    noted = (field.metadata or {}).get(b"ARROW:extension:name")
    return None if noted is None else noted.decode("utf-8", "replace")


# --- Spatial types ----------------------------------------------------------------------------------------------------
# The protocol names a coordinate reference system and, for geographies, how edges between points run:
# `geometry(EPSG:3857)`, `geography(OGC:CRS84, SPHERICAL)`.  Omitted parts have defaults.

DEFAULT_CRS, DEFAULT_ALGORITHM = "OGC:CRS84", "SPHERICAL"
ALGORITHMS = ("SPHERICAL", "VINCENTY", "THOMAS", "ANDOYER", "KARNEY")
#: The reference system of a column in which each value has its own; tables cannot have such columns.
MIXED_CRS = "SRID:ANY"
#: Spark SQL's numbers for reference systems.
_CRS_OF_SRID = {"0": "SRID:0", "3857": "EPSG:3857", "4326": "OGC:CRS84", "any": MIXED_CRS}
_TYPE = re.compile(r"(geometry|geography)(?:\(\s*(?:(\w+:-?\w+)(?:\s*,\s*(\w+))?|([A-Za-z]\w*))\s*\))?")


def spatial_name(name: str) -> str | None:
    """The full name of a spatial type of the protocol; ``None`` for any other type.

    >>> spatial_name("geometry"), spatial_name("geography(vincenty)"), spatial_name("geometry(x)")
    ('geometry(OGC:CRS84)', 'geography(OGC:CRS84, VINCENTY)', None)
    """
    m = _TYPE.fullmatch(name)
    if m is None:
        return None
    crs, algorithm = m[2] or DEFAULT_CRS, m[3] or m[4]
    if m[1] == "geometry":
        return f"geometry({crs})" if algorithm is None else None
    algorithm = (algorithm or DEFAULT_ALGORITHM).upper()
    return f"geography({crs}, {algorithm})" if algorithm in ALGORITHMS else None


def is_mixed(name: str) -> bool:
    """Whether each value of a spatial type has its own reference system."""
    return MIXED_CRS in name.upper()


def name_of_srid(word: str, parameters: str) -> str:
    """The protocol's name for a type in SQL, which has Spark's number or the name of a reference system.

    >>> name_of_srid("geometry", "4326"), name_of_srid("geometry", "EPSG:3857")
    ('geometry(OGC:CRS84)', 'geometry(EPSG:3857)')
    """
    return f"{word}({_CRS_OF_SRID.get(parameters.lower(), parameters)})" if parameters else word


# --- User metadata of fields, such as comments: in Arrow, and in the log ----------------------------------------------
# Protocol: *Schema Serialization Format*.  Users cannot set the keys of the protocol, of Spark or of a file format:
# ids, generated and default values, invariants and length limits need calls that check them.

#: Prefixes, in lower case, of reserved keys.
_RESERVED = ("delta.", "__", "parquet", "arrow:", "spark.", "lance", "orc.", "iceberg.", "trilake.")
_DEFAULTS = frozenset(("current_default", "exists_default", "generationexpression"))


def is_users(name: str) -> bool:
    """Whether a key belongs to the user.

    >>> [n for n in ("comment", "unit", "delta.identity.start", "PARQUET:field_id", "CURRENT_DEFAULT") if is_users(n)]
    ['comment', 'unit']
    """
    folded = name.lower()
    return bool(folded) and not folded.startswith(_RESERVED) and folded not in _DEFAULTS


def notes_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The user metadata of an Arrow field; values that are not UTF-8 are left out."""
    notes = {}
    for name, value in (metadata or {}).items():
        try:
            key, string = name.decode(), value.decode()
        except UnicodeDecodeError:
            continue
        if is_users(key):
            notes[key] = string
    return notes


def arrow_notes(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    """The user metadata of a field in the log for its Arrow field, without numbers and objects, which Arrow lacks."""
    return {k: v for k, v in metadata.items() if isinstance(v, str) and is_users(k)} or None
