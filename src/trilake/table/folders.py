"""Folders of data files without a log: ``key=value`` folders are partition columns, as in Hive and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from trilake.common.compute import pc
from trilake.errors import SchemaMismatchError
from trilake.storage.base import ObjectMeta

#: The folder name of null.
NULL = "__HIVE_DEFAULT_PARTITION__"
#: Patterns of partition values and their types, the narrowest first.
_FORMS = (
    (r"^[+-]?[0-9]{1,38}$", (pa.int32(), pa.int64(), pa.decimal128(38, 0))),
    (r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(nan|NaN|inf|Infinity)$", (pa.float64(),)),
    (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", (pa.date32(),)),
)


@dataclass(frozen=True)
class DataFile:
    """A file: key, size in bytes, and partition values (strings or null)."""

    key: str
    size: int
    partition: tuple[tuple[str, str | None], ...] = ()


def data_file(meta: ObjectMeta) -> DataFile:
    """A file, with the partition values in its key."""
    partition = []
    for part in meta.key.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            partition.append((unquote(name), None if value == NULL else unquote(value)))
    return DataFile(meta.key, meta.size, tuple(partition))


def is_hidden(key: str) -> bool:
    """Whether readers ignore a file because of its name or a folder's name."""
    return any(part.startswith((".", "_")) and "=" not in part for part in key.split("/"))


def partition_fields(files: Sequence[DataFile]) -> list[pa.Field]:
    """The partition columns of files, with the narrowest type for all their values.

    Types are inferred as in Spark (int, bigint, decimal for larger integers, double, date, string), but times stay
    strings, since their zone is unknown.
    """
    columns = enumerate(files[0].partition if files else ())
    return [pa.field(name, _common_type([f.partition[i][1] for f in files])) for i, (name, _) in columns]


def _common_type(strings: Sequence[str | None]) -> pa.DataType:
    values = pa.array([string for string in strings if string is not None], pa.string()).unique()
    for form, types in _FORMS:
        if not len(values) or not pc.all(pc.match_substring_regex(values, form)).as_py():
            continue
        for type_ in types:
            try:
                _cast(values, type_)
            except pa.ArrowInvalid:
                continue
            if pa.types.is_decimal(type_):
                digits = pc.utf8_length(pc.utf8_ltrim(values, characters="+-0"))
                return pa.decimal128(int(pc.max(digits).as_py()), 0)
            # Strings may look like NaN or infinity: these only count among other numbers.
            numbers = not pa.types.is_floating(type_) or pc.any(pc.match_substring_regex(values, r"[0-9]")).as_py()
            return type_ if numbers else pa.string()
    return pa.string()


def _cast(strings: pa.Array, type_: pa.DataType) -> pa.Array:
    # Arrow does not accept a leading plus.
    return pc.replace_substring_regex(strings, r"^\+", "").cast(type_) if not pa.types.is_string(type_) else strings


def partition_value(string: str | None, one: pa.Field, file: str) -> pa.Scalar:
    """Parse the value of a partition folder.  Raises ``SchemaMismatchError`` if it does not fit the type."""
    try:
        return _cast(pa.array([string], pa.string()), one.type)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatchError(
            f"the value of the folder {one.name}={string} does not fit type {one.type}: {e}",
            help="read the column as a string",
            file=file,
            column=one.name,
        ) from e


def partition_values(files: Sequence[DataFile], fields: Sequence[pa.Field]) -> dict[str, pa.Array]:
    """The value of each partition column in each file."""
    values = {}
    for i, one in enumerate(fields):
        strings = [f.partition[i][1] for f in files]
        try:
            values[one.name] = _cast(pa.array(strings, pa.string()), one.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # One by one, to find the wrong one.
            parsed = [partition_value(string, one, file.key) for string, file in zip(strings, files, strict=True)]
            values[one.name] = pa.array([value.as_py() for value in parsed], one.type)
    return values
