"""The table schema: the JSON of ``metaData.schemaString``, its types, and their Arrow forms.

Protocol: *Schema Serialization Format* and *Column Mapping*.  A schema is a tree of frozen dataclasses; unknown keys of
a field's metadata are preserved, since other writers use them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import orjson
import pyarrow as pa

from trilake.common.arrow_types import rebuilt
from trilake.common.text import columns_help
from trilake.delta.protocol.arrow_types import is_mixed, is_variant, notes_of, primitive_name, spatial_name
from trilake.delta.protocol.primitives import PRIMITIVES, USER_DEFINED, TypeTraits, traits_of
from trilake.errors import CorruptLogError, SchemaMismatchError, UnsupportedProtocolError
from trilake.expr.views import without_views_type

PHYSICAL_NAME = "delta.columnMapping.physicalName"
COLUMN_ID = "delta.columnMapping.id"
#: Field metadata: the field ids of array elements, and of keys and values of maps, by path in the file.
NESTED_IDS = "delta.columnMapping.nested.ids"
#: Key of an Arrow field's metadata: the Delta type, as JSON, of a column with variants, spatial or user-defined types.
DELTA_TYPE = "trilake.deltaType"
#: Deeper than any real schema, and well below Python's recursion limit.
MAX_DEPTH = 100

_VARIANT_PARTS = {("value", "binary"), ("metadata", "binary")}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
# A string with a collation or length limit is stored as a plain one.
_STRING_LIKE = re.compile(r"string collate \S+|(?:var)?char\(\d+\)", re.IGNORECASE)


def arrow_field(name: str, type_: pa.DataType, nullable: bool, notes: Mapping[Any, Any] | None = None) -> pa.Field:
    """An Arrow field; a field of type null is nullable, unlike the void elements of Spark's ``array()``."""
    return pa.field(name, type_, nullable or pa.types.is_null(type_), notes)


def arrow_list(element: pa.DataType, nullable: bool) -> pa.DataType:
    """The Arrow type of an array."""
    return pa.list_(arrow_field("element", element, nullable))


def arrow_map(key: pa.DataType, value: pa.DataType, nullable: bool) -> pa.DataType:
    """The Arrow type of a map.  Arrow has no null keys; a map with void keys is empty, so any key type works."""
    key = pa.string() if pa.types.is_null(key) else key
    return pa.map_(pa.field("key", key, False), arrow_field("value", value, nullable))


def is_spatial(name: str) -> bool:
    """Whether this is the name of a spatial type."""
    return name.startswith(("geometry(", "geography("))


@dataclass(frozen=True)
class PrimitiveType:
    """A type without parts; ``name`` is the protocol's type name, such as ``long`` or ``decimal(10,2)``."""

    name: str

    @property
    def traits(self) -> TypeTraits:
        """What is known about the type."""
        return traits_of(self.name)

    @property
    def arrow(self) -> pa.DataType:
        type_ = traits_of(self.name).arrow
        if type_ is not None:
            return type_
        m = _DECIMAL.fullmatch(self.name)
        assert m is not None, self.name
        return pa.decimal128(int(m[1]), int(m[2]))

    def to_json(self) -> Any:
        return self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class UserDefinedType(PrimitiveType):
    """A user-defined type of Spark, whose columns hold values of ``sql_type``.

    ``name`` is ``udt:`` and the class: types of the same class are equal.  ``definition`` is the type as JSON.  It
    may contain a pickled class, which is preserved but never loaded.
    """

    sql_type: DataType = field(compare=False)
    definition: str = field(compare=False, repr=False)

    @property
    def traits(self) -> TypeTraits:
        return USER_DEFINED

    @property
    def arrow(self) -> pa.DataType:
        return all_nullable(self.sql_type).arrow

    def to_json(self) -> Any:
        return orjson.loads(self.definition)

    def __str__(self) -> str:
        return str(self.sql_type)


@dataclass(frozen=True)
class ArrayType:
    """A list of values of one type."""

    element: DataType
    contains_null: bool = True

    @property
    def arrow(self) -> pa.DataType:
        return arrow_list(self.element.arrow, self.contains_null)

    def to_json(self) -> Any:
        return {"type": "array", "elementType": self.element.to_json(), "containsNull": self.contains_null}

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class MapType:
    """Key-value pairs."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    @property
    def arrow(self) -> pa.DataType:
        return arrow_map(self.key.arrow, self.value.arrow, self.value_contains_null)

    def to_json(self) -> Any:
        return {
            "type": "map",
            "keyType": self.key.to_json(),
            "valueType": self.value.to_json(),
            "valueContainsNull": self.value_contains_null,
        }

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class StructField:
    """One named column, top-level or nested."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """The name in data files, statistics and partition values; the display name unless the column is mapped."""
        name = self.metadata.get(PHYSICAL_NAME)
        return name if isinstance(name, str) else self.name

    @property
    def column_id(self) -> int | None:
        """The Parquet field id of a mapped column."""
        value = self.metadata.get(COLUMN_ID)
        try:
            return int(value) if value is not None else None
        except (TypeError, ValueError) as e:
            raise CorruptLogError(
                f"column {self.name!r} has an id that is not a number: {str(value)[:80]!r}", column=self.name
            ) from e

    @property
    def arrow(self) -> pa.Field:
        """The Arrow field with the display name."""
        return arrow_field(self.name, self.type.arrow, self.nullable)

    def to_json(self) -> Any:
        return {
            "name": self.name,
            "type": self.type.to_json(),
            "nullable": self.nullable,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True)
class StructType:
    """Named fields: the table itself, or a nested column."""

    fields: tuple[StructField, ...]
    #: Whether :meth:`find` is case-sensitive.
    case_sensitive: bool = field(default=False, compare=False, repr=False)

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([f.arrow for f in self.fields])

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    def to_arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return pa.schema([f.arrow for f in self.fields])

    def find(self, name: str) -> StructField | None:
        """Find a field by name: an exact match, otherwise ignoring case unless the names are :meth:`exact`."""
        found = self._by_name.get(name)
        if found is not None or self.case_sensitive:
            return found
        spellings = self.spellings(name)
        return self._by_name[spellings[0]] if spellings else None

    def spellings(self, name: str) -> Sequence[str]:
        """The names of the fields with this name in any case."""
        return self._by_lower_name.get(name.lower(), ())

    def exact(self) -> StructType:
        """The same fields with case-sensitive lookup, at every depth.

        >>> schema = StructType((StructField("s", StructType((StructField("a", PrimitiveType("long")),))),)).exact()
        >>> schema.along(["s", "A"]), schema.find("S")
        ((), None)
        """
        inside = (replace(f, type=f.type.exact()) if isinstance(f.type, StructType) else f for f in self.fields)
        return StructType(tuple(inside), case_sensitive=True)

    @cached_property
    def nullable(self) -> StructType:
        """The same fields with every part nullable; see :func:`all_nullable`."""
        fields = tuple(map(_nullable_field, self.fields))
        return self if all(map(operator.is_, fields, self.fields)) else StructType(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return StructType, (self.fields, self.case_sensitive)  # cached results stay here

    @cached_property
    def _by_name(self) -> dict[str, StructField]:
        return {f.name: f for f in reversed(self.fields)}  # the first of two with the same name

    @cached_property
    def _by_lower_name(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for f in self.fields:
            names.setdefault(f.name.lower(), []).append(f.name)
        return names

    def field(self, name: str) -> StructField:
        """Like :meth:`find`, but a missing column raises a ``SchemaMismatchError`` that lists the existing ones."""
        f = self.find(name)
        if f is None:
            raise SchemaMismatchError(
                f"the table has no column {name!r}", help=columns_help(name, self.names), column=name
            )
        return f

    def along(self, path: Sequence[str], *, physical: bool = False) -> tuple[StructField, ...]:
        """The fields from a top-level column down to a nested one, by ``physical`` names; none for an unknown path.

        >>> schema = StructType((StructField("s", StructType((StructField("a", PrimitiveType("long")),))),))
        >>> [f.name for f in schema.along(["S", "a"])], schema.along(["s", "b"])
        (['s', 'a'], ())
        """
        fields: list[StructField] = []
        level: DataType = self
        for name in path:
            field = None
            if isinstance(level, StructType):
                same = (f for f in level.fields if f.physical_name == name)
                field = next(same, None) if physical else level.find(name)
            if field is None:
                return ()
            fields.append(field)
            level = field.type
        return tuple(fields)

    def to_json(self) -> Any:
        return {"type": "struct", "fields": [f.to_json() for f in self.fields]}

    def json(self) -> str:
        """The ``schemaString``."""
        return orjson.dumps(self.to_json()).decode()

    def leaves(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructField]]:
        """Every field that is not a struct, with its display path; arrays and maps count as one leaf."""
        for f in self.fields:
            path = (*prefix, f.name)
            if isinstance(f.type, StructType):
                yield from f.type.leaves(path)
            else:
                yield path, f

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{f.name}:{f.type}" for f in self.fields) + ">"


DataType = PrimitiveType | ArrayType | MapType | StructType


def parts(t: DataType) -> tuple[tuple[str, DataType], ...]:
    """The types inside a type, with their names in paths: a field's name, ``element``, ``key`` or ``value``.

    >>> parts(MapType(PrimitiveType("string"), PrimitiveType("long")))
    (('key', PrimitiveType(name='string')), ('value', PrimitiveType(name='long')))
    """
    if isinstance(t, StructType):
        return tuple((f.name, f.type) for f in t.fields)
    if isinstance(t, ArrayType):
        return (("element", t.element),)
    return (("key", t.key), ("value", t.value)) if isinstance(t, MapType) else ()


def with_parts(t: DataType, types: Sequence[DataType]) -> DataType:
    """The type with other parts, in the order of :func:`parts`; ``t`` itself if they are the same objects."""
    if all(a is b for (_, a), b in zip(parts(t), types, strict=True)):
        return t
    if isinstance(t, StructType):
        return StructType(tuple(replace(f, type=inner) for f, inner in zip(t.fields, types, strict=True)))
    if isinstance(t, ArrayType):
        return replace(t, element=types[0])
    return replace(t, key=types[0], value=types[1]) if isinstance(t, MapType) else t


def each_type(t: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """Transform a type bottom-up: first all types inside it, then the type itself.

    >>> str(each_type(ArrayType(PrimitiveType("long")), lambda t: ArrayType(t)))
    'array<array<array<long>>>'
    """
    return change(with_parts(t, [each_type(inner, change) for _, inner in parts(t)]))


def types_in(t: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """The type and all types inside it, each with its path, parents first."""
    yield path, t
    for name, inner in parts(t):
        yield from types_in(inner, (*path, name))


def fields_in(t: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """The fields of all structs inside a type, each with its path, parents first."""
    fields = t.fields if isinstance(t, StructType) else ()
    for i, (name, inner) in enumerate(parts(t)):
        if fields:
            yield (*path, name), fields[i]
        yield from fields_in(inner, (*path, name))


def contains_type(t: DataType, name: str) -> bool:
    """Whether the primitive type ``name`` occurs in a type.

    >>> contains_type(ArrayType(PrimitiveType("void")), "void"), contains_type(PrimitiveType("long"), "void")
    (True, False)
    """
    return any(isinstance(inner, PrimitiveType) and inner.name == name for _, inner in types_in(t))


def paired(a: DataType, b: DataType) -> tuple[tuple[str, DataType, DataType], ...] | None:
    """The parts of two arrays or maps with their names; ``None`` for others.  Callers match the fields of structs."""
    if (isinstance(a, ArrayType) and isinstance(b, ArrayType)) or (isinstance(a, MapType) and isinstance(b, MapType)):
        return tuple((name, x, y) for (name, x), (_, y) in zip(parts(a), parts(b), strict=True))
    return None


def convert_parts(
    array: pa.Array, target: DataType, convert: Callable[[pa.Array, DataType, str], pa.Array], path: str
) -> pa.Array:
    """Convert a list or map to ``target``; ``convert`` gets its element, or key and value, with their type and path."""
    inside = iter(parts(target))

    def part(values: pa.Array, field: pa.Field) -> pa.Array:
        name, type_ = next(inside)
        converted = convert(values, type_, f"{path}.{name}")
        return converted if converted.type == field.type else converted.cast(field.type)

    # A slice has the values of all rows; a copy has only its own.
    return rebuilt(pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array, target.arrow, part)


def parse_schema(json_string: str, *, version: int | None = None) -> StructType:
    """Parse ``metaData.schemaString``.  Raises ``CorruptLogError``, ``UnsupportedProtocolError`` for unknown types.

    >>> parse_schema('{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}').names
    ['a']
    """
    if not json_string:
        return StructType(())
    try:
        schema = _parsed(json_string)
    except (ValueError, KeyError, TypeError) as e:
        why = f"{e} is missing" if isinstance(e, KeyError) else str(e)
        raise CorruptLogError(f"schemaString is not a schema ({why}): {json_string!r:.80}", version=version) from e
    if not isinstance(schema, StructType):
        raise CorruptLogError("schemaString is not a struct", version=version)
    spellings: dict[str, str] = {}
    for name in schema.names:
        if (other := spellings.setdefault(name.lower(), name)) is not name:
            raise CorruptLogError(f"two columns are named {other!r} and {name!r}", version=version)
    return schema


@lru_cache(maxsize=16)  # tables are opened repeatedly, and parsing thousands of columns dominates
def _parsed(json_string: str) -> DataType:
    return _parse_type(orjson.loads(json_string), 0)


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a column name")
    return value


def _metadata(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"{value!r:.80} is not valid column metadata")
    return dict(value or {})


def _parse_type(node: Any, depth: int) -> DataType:
    if depth > MAX_DEPTH:
        raise CorruptLogError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, str):
        return parse_primitive(node)
    if not isinstance(node, dict):
        raise TypeError(f"{node!r:.80} is not a type")
    kind = node["type"]
    if kind == "struct":
        if not isinstance(node["fields"], list) or not all(isinstance(f, dict) for f in node["fields"]):
            raise TypeError(f"fields must be a list of objects, got {node['fields']!r:.80}")
        return StructType(
            tuple(
                StructField(
                    _name(f["name"]),
                    _parse_type(f["type"], depth + 1),
                    bool(f.get("nullable", True)),
                    _metadata(f.get("metadata")),
                )
                for f in node["fields"]
            )
        )
    if kind == "array":
        return ArrayType(_parse_type(node["elementType"], depth + 1), bool(node.get("containsNull", True)))
    if kind == "map":
        key, value = _parse_type(node["keyType"], depth + 1), _parse_type(node["valueType"], depth + 1)
        return MapType(key, value, bool(node.get("valueContainsNull", True)))
    if kind == "udt":
        class_name = node.get("class") or node["pyClass"]
        return UserDefinedType(
            f"udt:{_name(class_name)}", _parse_type(node["sqlType"], depth + 1), orjson.dumps(node).decode()
        )
    if isinstance(kind, str):
        return parse_primitive(kind)
    return _parse_type(kind, depth + 1)


#: Types by name, so that a table with thousands of columns has one object per type.
_KNOWN = {name: PrimitiveType(name) for name in PRIMITIVES}
_KNOWN["null"] = _KNOWN["void"]


def parse_primitive(name: str) -> PrimitiveType:
    """Parse the protocol's name of a primitive type.  Raises ``UnsupportedProtocolError`` for an unknown name."""
    type_ = _KNOWN.get(name)
    if type_ is not None:
        return type_
    if m := _DECIMAL.fullmatch(name):
        precision, scale = int(m[1]), int(m[2])
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise CorruptLogError(f"{name} is not a valid decimal type")
        return PrimitiveType(f"decimal({precision},{scale})")
    if name == "decimal":
        return PrimitiveType("decimal(10,0)")
    if _STRING_LIKE.fullmatch(name):
        return PrimitiveType(name)
    if (spatial := spatial_name(name)) is not None and not is_mixed(spatial):
        return PrimitiveType(spatial)
    if spatial is not None:
        message = f"all values of a column must have the same reference system, but {spatial!r} allows any"
        help = "declare the reference system, e.g. geometry(OGC:CRS84) or, in SQL, geometry(4326)"
        raise UnsupportedProtocolError(message, help=help, condition="DELTA_GEOSPATIAL_SRID_NOT_SUPPORTED")
    if name.lower().startswith("interval"):
        message = f"Delta does not support interval types: {name[:80]!r}"
        help = "store a number of units (bigint), or the start and end of the interval"
        raise UnsupportedProtocolError(message, help=help, condition="DELTA_UNSUPPORTED_DATA_TYPES")
    message = f"data type {name[:80]!r} is unknown"
    help = "upgrade trilake: a newer version may support this type"
    raise UnsupportedProtocolError(message, help=help, condition="DELTA_UNSUPPORTED_DATA_TYPES")


def check_distinct(names: Sequence[str]) -> None:
    """Raise ``SchemaMismatchError`` if two column names differ only in case, which a Delta table does not allow."""
    spellings: dict[str, str] = {}
    for name in names:
        other = spellings.get(name.lower())
        if other is not None:
            same = f"two columns are named {name!r}"
            raise SchemaMismatchError(
                same if other == name else f"columns {other!r} and {name!r} differ only in case",
                help="rename one of them: column names are case-insensitive in a Delta table",
                column=name,
                condition="DELTA_DUPLICATE_COLUMNS_FOUND",
            )
        spellings[name.lower()] = name


def from_arrow(schema: pa.Schema) -> StructType:
    """The Delta schema for rows of an Arrow schema.

    Unsigned integers become the next wider signed type; times of day, durations and unions have no Delta type and raise
    ``SchemaMismatchError``.  User metadata is kept.  Arrow has no variants or user-defined types, so it stores their
    parts; :data:`DELTA_TYPE` marks such columns.

    >>> str(from_arrow(pa.schema([("a", pa.int64()), ("t", pa.timestamp("ns", "UTC"))])))
    'struct<a:long,t:timestamp>'
    """
    check_distinct(schema.names)
    return StructType(tuple(_with_mark(_from_arrow_field(f, f.name), f) for f in schema))


def _from_arrow_field(f: pa.Field, path: str) -> StructField:
    return StructField(f.name, _type_of_field(f, path), f.nullable, notes_of(f.metadata))


def _type_of_field(f: pa.Field, path: str) -> DataType:
    return _KNOWN["variant"] if is_variant(f, path) else _from_arrow_type(f.type, path)


def _from_arrow_type(t: pa.DataType, path: str) -> DataType:
    ty = pa.types
    t = without_views_type(t)
    if ty.is_dictionary(t) or ty.is_run_end_encoded(t):
        return _from_arrow_type(t.value_type, path)
    if isinstance(t, pa.BaseExtensionType):
        return _from_arrow_type(t.storage_type, path)
    if ty.is_struct(t):
        if not t.num_fields:
            message = "a struct without fields cannot be stored in Parquet files"
            help = "leave the column out, or add a field to the struct"
            raise SchemaMismatchError(message, help=help, column=path, condition="DELTA_UNSUPPORTED_DATA_TYPES")
        return StructType(
            tuple(_from_arrow_field(t.field(i), f"{path}.{t.field(i).name}") for i in range(t.num_fields))
        )
    if ty.is_map(t):
        return MapType(
            _type_of_field(t.key_field, f"{path}.key"),
            _type_of_field(t.item_field, f"{path}.value"),
            t.item_field.nullable,
        )
    if ty.is_list(t) or ty.is_large_list(t) or ty.is_fixed_size_list(t):
        return ArrayType(_type_of_field(t.value_field, f"{path}.element"), t.value_field.nullable)
    return PrimitiveType(primitive_name(t, path))


def _with_mark(field: StructField, f: pa.Field) -> StructField:
    mark = (f.metadata or {}).get(DELTA_TYPE.encode())
    if mark is None:
        return field
    try:
        marked_type = parse_schema(mark.decode("utf-8", "replace"))
    except (CorruptLogError, UnsupportedProtocolError):
        return field
    return replace(field, type=where_marked(field.type, marked_type.fields[0].type)) if marked_type.fields else field


def where_marked(type_: DataType, marked_type: DataType) -> DataType:
    """The type with variants and user-defined types, which Arrow lacks, taken from ``marked_type``."""
    if isinstance(marked_type, UserDefinedType):
        return marked_type if all_nullable(type_) == all_nullable(marked_type.sql_type) else type_
    if isinstance(marked_type, PrimitiveType) and is_spatial(marked_type.name):
        return marked_type if str(type_) == "binary" else type_
    if isinstance(marked_type, PrimitiveType):
        binaries = {(name, str(inner)) for name, inner in parts(type_)}
        return marked_type if marked_type.name == "variant" and binaries == _VARIANT_PARTS else type_
    if isinstance(marked_type, StructType) and isinstance(type_, StructType):
        pairs = ((f.type, marked_type.find(f.name)) for f in type_.fields)
        return with_parts(type_, [t if n is None else where_marked(t, n.type) for t, n in pairs])
    pairs_inside = paired(type_, marked_type)
    return type_ if pairs_inside is None else with_parts(type_, [where_marked(a, b) for _, a, b in pairs_inside])


def needs_mark(type_: DataType) -> bool:
    """Whether a type contains a variant, spatial or user-defined type, which Arrow lacks."""
    return any(isinstance(t, PrimitiveType) and t.traits.marked for _, t in types_in(type_))


def marked(field: pa.Field, type_: DataType) -> pa.Field:
    """The Arrow field of a column of this type, marked with the type as JSON if Arrow lacks it."""
    if not needs_mark(type_):
        return field
    return field.with_metadata({**(field.metadata or {}), DELTA_TYPE: StructType((StructField("c", type_),)).json()})


def all_nullable(t: DataType) -> DataType:
    """The same type with every part nullable, as Delta stores data that Spark writes."""
    if isinstance(t, ArrayType):
        return ArrayType(all_nullable(t.element), True)
    if isinstance(t, MapType):
        return MapType(all_nullable(t.key), all_nullable(t.value), True)
    return t.nullable if isinstance(t, StructType) else t


def _nullable_field(f: StructField) -> StructField:
    type_ = f.type if isinstance(f.type, PrimitiveType) else all_nullable(f.type)
    return f if f.nullable and type_ is f.type else replace(f, type=type_, nullable=True)
