"""Partition columns of a native scan: inferred by Spark from folders, or looked up in the plan.

If the folder names spell the logged values as Hive does, Spark infers the columns and prunes by them.  This is used
only if Spark certainly reads the logged values under any settings; see :func:`hive_columns`.

Otherwise, a column is a constant array of the distinct values in the plan, indexed by a number that comes with the
file. The expression depends only on the file, so Spark evaluates filters on it during planning, and skips files by
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.delta.protocol.partition_values import format_dates, format_times
from trilake.delta.protocol.partitions import HIVE_NULL
from trilake.expr.terms import engine
from trilake.spark.scan.manifest import Integers
from trilake.storage import split_absolute

#: Characters that Spark escapes in a folder's name; the percent sign comes first because escaping adds it.
_ESCAPED = "%" + "".join(map(chr, range(1, 32))) + "\x7f\"#'*/:=?\\{[]^"
_SPECIAL = r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""
_INTEGER = r"^(?:0|-?[1-9][0-9]*)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


class Tuples(NamedTuple):
    """The distinct combinations of partition values, and each file's combination."""

    number: Integers
    #: The values by column, one per combination.
    values: Mapping[str, pa.Array]


def hive_columns(
    root: str, paths: pa.ChunkedArray, values: Mapping[str, pa.ChunkedArray], aliases: Mapping[str, str]
) -> dict[str, str] | None:
    """The partition columns by folder name, in folder order, if Spark's inference certainly gives ``values``; otherwise
    ``None``, for example for a file elsewhere, extra levels, or a type that does not survive a string.  ``paths`` are
    absolute and decoded; ``aliases`` are alternative folder names."""
    base = "/" + split_absolute(root)[1] + "/"
    if "=" in base.rstrip("/").rpartition("/")[2]:
        return None  # Spark would treat this folder as a partition
    if not pc.all(pc.starts_with(paths, base)).as_py():
        return None
    below = pc.utf8_slice_codeunits(paths, len(base))
    folders = pc.dictionary_encode(pc.replace_substring_regex(below, r"(?s)/?[^/]*$", "")).combine_chunks()
    levels = pc.split_pattern(folders.dictionary, "/")
    if not pc.all(pc.equal(pc.list_value_length(levels), len(values))).as_py():
        return None
    out: dict[str, str] = {}
    for level in range(len(values)):
        parts = pc.list_element(levels, level)
        folder = str(parts[0]).partition("=")[0]
        column = next((c for c in values if folder in (c, aliases.get(c)) and c not in out.values()), None)
        if column is None or "%" in folder or not pc.all(pc.starts_with(parts, f"{folder}=")).as_py():
            return None
        spelled = pc.utf8_slice_codeunits(parts, len(folder) + 1)
        if not _reads_as(spelled, folders.indices, _flat(values[column])):
            return None
        out[folder] = column
    return out


def distinct(values: Mapping[str, pa.ChunkedArray]) -> Tuples:
    """The distinct combinations of partition values."""
    flat = {name: _flat(v) for name, v in values.items()}
    codes = [pc.dictionary_encode(v, null_encoding="encode") for v in flat.values()]

    def combine(left: Integers, right: pa.DictionaryArray) -> Integers:
        # Renumber after each column, so that numbers stay below the number of files.
        both = left * len(right.dictionary) + right.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return np.unique(both, return_inverse=True)[1].astype(np.int64)

    number = reduce(combine, codes, np.zeros(len(next(iter(flat.values()))), np.int64))
    first = pa.array(np.unique(number, return_index=True)[1])
    return Tuples(number, {name: v.take(first) for name, v in flat.items()})


def attached(values: pa.Array, type_: T.DataType, number: Column) -> Column:
    """The element of ``values`` at ``number``, as a column of ``type_``.  The array consists of a JSON string and
    casts, which Spark folds to one constant before it plans the scan."""
    if pa.types.is_binary(values.type):
        strings = pc.cast(
            engine.query("SELECT to_base64(v) AS v FROM t", t=pa.table({"v": values}))["v"].combine_chunks(),
            pa.string(),
        )
        return F.unbase64(F.get(_strings(strings), number))
    zoned = pa.types.is_timestamp(values.type) and values.type.tz is not None
    plain = values.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")) if zoned else values
    strings = plain.cast(pa.string())
    if pa.types.is_temporal(plain.type) and pc.any(pc.starts_with(strings, "<")).as_py():
        # Arrow formats years beyond 32767 as "<value out of range: ...>".
        format_ = format_dates if pa.types.is_date(plain.type) else format_times
        strings = pa.array(format_(plain, plain.type), pa.string())
    if zoned:
        strings = pc.binary_join_element_wise(strings, "Z", "")  # an instant, in any time zone of the session
    array = _strings(strings)
    return F.get(array if isinstance(type_, T.StringType) else array.cast(T.ArrayType(type_)), number)


def _strings(strings: pa.Array) -> Column:
    return F.from_json(F.lit(orjson.dumps(strings.to_pylist()).decode()), "array<string>")


def _flat(values: pa.ChunkedArray) -> pa.Array:
    flat = values.combine_chunks()
    return flat.dictionary_decode() if pa.types.is_dictionary(flat.type) else flat


def _reads_as(spelled: pa.Array, folder: pa.Array, values: pa.Array) -> bool:
    typed = pc.dictionary_encode(values, null_encoding="encode")
    allowed = _spellings(typed.dictionary)
    if allowed is None:
        return False
    folder_strings = spelled.take(folder)
    equal = reduce(pc.or_, (pc.equal(folder_strings, strings.take(typed.indices)) for strings in allowed))
    return bool(pc.all(equal).as_py())


def _spellings(values: pa.Array) -> list[pa.Array] | None:
    """The strings that Spark certainly reads as each of ``values``; ``None`` if a value has no such string."""
    type_ = values.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        strings = values.cast(pa.string())
        if pc.any(pc.is_in(strings, pa.array(["", HIVE_NULL]))).as_py():
            return None
        # Some writers do not escape, which is also correct if there is nothing to unescape.
        plain = pc.replace_substring(strings, "%", "%25")
        return [pc.fill_null(t, HIVE_NULL) for t in (_escape(strings), plain)]
    if pa.types.is_integer(type_):
        pattern = _INTEGER
    elif pa.types.is_date(type_):
        pattern = _DATE
    elif pa.types.is_boolean(type_):
        pattern = "^(?:true|false)$"
    else:
        return None
    strings = pc.cast(values, pa.string())
    if not pc.all(pc.match_substring_regex(strings, pattern), min_count=0).as_py():
        return None
    return [pc.fill_null(strings, HIVE_NULL)]


def _escape(strings: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(strings, _SPECIAL)).as_py():
        return strings
    return reduce(lambda t, c: pc.replace_substring(t, c, f"%{ord(c):02X}"), _ESCAPED, strings)
