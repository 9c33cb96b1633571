"""Partition columns from folder names such as ``day=2024-05-01``.

The rules are Spark's, so that a folder means the same before and after the conversion: names and values are unescaped,
``__HIVE_DEFAULT_PARTITION__`` is null, and a column without a declared type gets the narrowest of int, long, decimal,
double, date, timestamp and string that fits all of its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.metadata.column_changes import RULES, TypeLike, as_arrow, new_columns
from trilake.delta.protocol.partitions import HIVE_NULL, can_partition, format_values, parse_values
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.sql_types import parse_sql_type
from trilake.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError

_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True)
class Partitions:
    """The partition columns of some folders, and each folder's values as the log spells them."""

    fields: tuple[StructField, ...]
    values: Mapping[str, Mapping[str, str | None]]


def unescape(string: str) -> str:
    """Undo Hive's escaping of a folder name or value.

    >>> unescape("a%2Fb%3D %")
    'a/b= %'
    """
    return _ESCAPED.sub(_unescaped, string) if "%" in string else string


def _unescaped(match: re.Match[str]) -> str:
    data = bytes.fromhex(match[0].replace("%", ""))
    try:
        return data.decode()
    except UnicodeDecodeError:  # Hive escapes characters, not bytes
        return data.decode("latin-1")


def discover(
    folders: Sequence[str],
    declared: Sequence[str | StructField] | None = None,
    *,
    timezone: str = "UTC",
    uri: str | None = None,
) -> Partitions:
    """Find the partition columns of distinct folders: paths below the root, which itself is the empty path.

    ``declared`` are the expected columns: fields, or names whose types are inferred; ``None`` infers all.  ``timezone``
    is the zone of timestamps in folder names without one, ``uri`` the place of the folders, for errors.

    Raises ``InvalidArgumentError`` for folders that contradict each other or the declared columns, and for values that
    do not fit a column's type.
    """
    columns_by_folder = {f: _columns(f, uri) for f in folders}
    names = _one_set_of_names(columns_by_folder, uri)
    if declared is not None:
        _check_declared([c if isinstance(c, str) else c.name for c in declared], names, uri)
    types = {c.name.lower(): c for c in declared or () if isinstance(c, StructField)}
    fields, strings = [], {}
    for i, name in enumerate(names):
        raw = sorted({columns[i][1] for columns in columns_by_folder.values()})
        distinct = pa.array([None if v == HIVE_NULL else unescape(v) for v in raw], pa.string())
        f = types.get(name.lower()) or StructField(name, PrimitiveType(_inferred(distinct)))
        fields.append(f)
        strings[i] = dict(zip(raw, _as_logged(distinct, f, timezone, uri), strict=True))
    values = {
        folder: {f.name: strings[i][columns[i][1]] for i, f in enumerate(fields)}
        for folder, columns in columns_by_folder.items()
    }
    return Partitions(tuple(fields), values)


def _columns(folder: str, uri: str | None) -> list[tuple[str, str]]:
    parts = folder.split("/") if folder else []
    columns = [p.partition("=") for p in parts]
    if any(sep and (not name or not value) for name, sep, value in columns):
        raise _conflict(f"folder {folder!r} has a partition column without a name or value", uri)
    separators = {sep for _, sep, _ in columns}
    if len(separators) > 1:
        raise _conflict(f"folder {folder!r} mixes partition columns with other folders", uri)
    if "=" not in separators:
        return []
    return [(unescape(name), value) for name, _, value in columns]


def _conflict(what: str, uri: str | None, condition: str | None = None) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"conflicting partition folders: {what}",
        help="move the files so that all are in column=value folders with the same columns in the same order",
        file=uri,
        condition=condition,
    )


def _one_set_of_names(parsed: Mapping[str, list[tuple[str, str]]], uri: str | None) -> list[str]:
    first_folders: dict[tuple[str, ...], str] = {}
    for folder, columns in parsed.items():
        first_folders.setdefault(tuple(name for name, _ in columns), folder)
    if len(first_folders) > 1:
        (a, x), (b, y) = list(first_folders.items())[:2]
        what = "PARTITION_COLUMN" if len(a) == len(b) else "NUM_PARTITION_COLUMNS"
        condition = f"DELTA_UNEXPECTED_{what}_FROM_FILE_NAME"
        raise _conflict(f"{list(a)} in {x!r} and {list(b)} in {y!r}", uri, condition)
    names = list(next(iter(first_folders), ()))
    if len({n.lower() for n in names}) < len(names):
        raise _conflict(f"the columns {names} are not unique", uri)
    return names


def _check_declared(declared: Sequence[str], names: Sequence[str], uri: str | None) -> None:
    if len(declared) != len(names):
        expected, actual = (f"{len(n)} partition column(s): {list(n)}" for n in (declared, names))
        condition = "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"
    elif other := next(((a, b) for a, b in zip(declared, names, strict=True) if a.lower() != b.lower()), None):
        expected, actual = (f"partition column {n}" for n in other)
        condition = "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"
    else:
        return
    raise InvalidArgumentError(
        f"expecting {expected}, but found {actual} from parsing the folder names",
        help="name the columns that the folders have, in their order, or leave them out",
        file=uri,
        condition=condition,
    )


_INTEGER = r"^[+-]?[0-9]+$"
# No trailing d or f: Java parses such strings as numbers, but nothing else does.
_DOUBLE = r"^[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"


def _inferred(values: pa.Array) -> str:
    strings = values.drop_null()
    if not len(strings):
        return "string"
    if _all(strings, _INTEGER):
        digits = pc.replace_substring_regex(strings, r"^([+-]?)0+([0-9])", r"\1\2")
        longest = pc.max(pc.utf8_length(pc.utf8_ltrim(digits, "+-"))).as_py()
        if longest > 38:
            return "double"
        numbers = digits.cast(pa.decimal128(38, 0))
        low, high = pc.min(numbers).as_py(), pc.max(numbers).as_py()
        for name, bits in (("integer", 31), ("long", 63)):
            if -(1 << bits) <= low and high < 1 << bits:
                return name
        return f"decimal({longest},0)"
    if _all(strings, _DOUBLE):
        return "double"
    if _all(strings, _DATE) and _casts(strings, pa.date32()):
        return "date"
    moments = pc.if_else(
        pc.match_substring_regex(strings, _DATE), pc.binary_join_element_wise(strings, "00:00:00", " "), strings
    )
    return "timestamp" if _all(moments, _TIMESTAMP) and _casts(moments, pa.timestamp("us")) else "string"


def _all(strings: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(strings, pattern)).as_py())


def _casts(strings: pa.Array, type_: pa.DataType) -> bool:
    try:
        strings.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


def _as_logged(values: pa.Array, field: StructField, timezone: str, uri: str | None) -> list[str | None]:
    if not can_partition(field.type):
        raise InvalidArgumentError(
            f"a table cannot be partitioned by a column of type {field.type}",
            column=field.name,
            file=uri,
            condition="DELTA_INVALID_PARTITION_COLUMN_TYPE",
        )
    try:
        typed_values = parse_values(pa.chunked_array([values]), field)
        if field.type.name == "timestamp" and timezone != "UTC":
            typed_values = _instants(values, timezone)
    except (CorruptLogError, pa.ArrowInvalid) as e:
        message = e.message if isinstance(e, CorruptLogError) else str(e)
        raise InvalidArgumentError(
            f"a value in a folder name cannot be cast to {field.type}, the type of its partition column: {message}",
            help="declare another type, such as string",
            column=field.name,
            file=uri,
            condition="DELTA_PARTITION_COLUMN_CAST_FAILED",
        ) from e
    return format_values(typed_values, field.type)


def _instants(values: pa.Array, timezone: str) -> pa.ChunkedArray:
    """Timestamps as instants; a timestamp without a zone is in ``timezone``."""
    zoned = pc.match_substring_regex(values, r"(?:[zZ]|[+-]\d{2}:?\d{2})$")
    plain = pc.if_else(zoned, None, values).cast(pa.timestamp("us"))
    there = pc.assume_timezone(plain, timezone, ambiguous="earliest", nonexistent="latest")
    instants = pc.if_else(zoned, values, None).cast(pa.timestamp("us", "UTC"))
    return pa.chunked_array([pc.coalesce(there.cast(pa.timestamp("us", "UTC")), instants)])


def with_partition_columns(data: StructType, partitions: Sequence[StructField]) -> StructType:
    """The table's schema: the files' columns; a partition column replaces a column of its name, or comes last.

    Raises ``SchemaMismatchError`` if only partition columns would be left.
    """
    by_name = {f.name.lower(): f for f in partitions}
    fields = [by_name.pop(f.name.lower(), f) for f in data.fields]
    if all(f.name.lower() in {p.name.lower() for p in partitions} for f in data.fields):
        raise SchemaMismatchError(
            "the files have no columns except the partition columns", condition="DELTA_NON_PARTITION_COLUMN_ABSENT"
        )
    return StructType((*fields, *by_name.values()))


def given_columns(
    columns: str | Sequence[str] | Mapping[str, TypeLike] | pa.Schema | StructType | None,
) -> list[str | StructField] | None:
    """Parse partition columns: names, types by name, a schema, or SQL such as ``"day date, n int"``.

    Raises ``InvalidArgumentError`` for a string that is neither a name nor a list of columns with types.

    >>> given_columns("day"), [str(f.type) for f in given_columns("day date, n int")]
    (['day'], ['date', 'integer'])
    """
    if columns is None:
        return None
    columns = as_arrow(columns)
    if isinstance(columns, str):
        if not re.search(r"[\s,:`]", columns.strip()):
            return [columns.strip()] if columns.strip() else []
        struct, _ = parse_sql_type(f"struct<{columns}>")
        assert isinstance(struct, StructType)
        return list(struct.fields)
    if isinstance(columns, pa.Schema | StructType | Mapping):
        fields = [c.field for c in new_columns(columns)]
        # The folders name all values, so a rule for missing ones has no effect.
        return [replace(f, metadata={k: v for k, v in f.metadata.items() if k not in RULES}) for f in fields]
    value: object = columns
    listed = [c for c in value if isinstance(c, str | StructField)] if isinstance(value, list | tuple) else []
    if not isinstance(value, list | tuple) or len(listed) != len(value):
        raise InvalidArgumentError(
            f"partition columns must be a list of names, or types by name, got {value!r:.80}",
            help="pass them in the order of the folders, such as ['year', 'month'] or {'year': 'int'}",
        )
    return listed
