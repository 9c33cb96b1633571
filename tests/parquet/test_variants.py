# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Shredded variants, compared with DuckDB's shredding and Spark's Python decoder."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils

from trilake.errors import CorruptFileError
from trilake.parquet.variants import unshredded, variant_groups

#: Metadata without names, and with the name ``a``.
EMPTY, WITH_A = b"\x01\x00\x00", b"\x11\x01\x00\x01a"


def decoded(variants: pa.Array) -> list[Any]:
    """The Python values of variants; ``...`` for a variant that is absent."""
    variants.validate(full=True)
    return [... if v is None else VariantUtils.to_python(v["value"], v["metadata"]) for v in variants.to_pylist()]


def shredded_by_duckdb(folder: str, values: list[Any], schema: str) -> pq.ParquetFile:
    rows = pa.table({"n": range(len(values)), "v": [json.dumps(v) for v in values]})
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        query = "SELECT n, v::JSON::VARIANT AS v FROM rows ORDER BY n"
        connection.execute(f"COPY ({query}) TO '{folder}/v.parquet' (SHREDDING {{'v': '{schema}'}})")
    return pq.ParquetFile(f"{folder}/v.parquet")


LONG = {f"k{i}": i for i in range(150)} | {f"l{i}": "z" * i for i in range(150)}
VALUES = [
    *({"a": 1, "b": "x", "zz": [1, 2]}, {"zz": None, "b": True}, "hello", [1, "x"], {"a": 1}, {}, [], 1.5, True),
    *({"a": {"q": 1.5, "r": [{"x": 1}, {"y": 2}, None]}}, {"a": 300000, "b": "y" * 100}, {"a": None}, 123456789012),
    *(LONG, {"nope": 1, "a": -5}, {"a": {"r": []}, "é": {"z": {"y": {"x": [[1], []]}}}}, list(range(300))),
]


@pytest.mark.parametrize(
    "schema",
    [
        *("INTEGER", "BIGINT", "VARCHAR", "INTEGER[]", "BOOLEAN", "STRUCT(a INTEGER, b VARCHAR)", "DOUBLE"),
        *("STRUCT(a STRUCT(q DOUBLE, r STRUCT(x BIGINT)[]), zz INTEGER[])", "STRUCT(l9 VARCHAR, k149 SMALLINT)"),
    ],
)
def test_variants_shredded_by_duckdb_are_reassembled(schema: str, tmp_path: Any) -> None:
    file = shredded_by_duckdb(str(tmp_path), VALUES, schema)
    assert variant_groups(file.metadata) == {"v"}
    assert decoded(unshredded(file.read()["v"].combine_chunks(), "v")) == VALUES


_NAMES = st.sampled_from(["a", "b", "zz", "é"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("xy", max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


def encoded(value: Any, names: list[str]) -> bytes:
    """A value encoded as specified, with four-byte sizes."""
    if value is None or isinstance(value, bool):
        return bytes([{None: 0, True: 4, False: 8}[value]])
    if isinstance(value, int):
        return b"\x18" + value.to_bytes(8, "little", signed=True)
    if isinstance(value, str):
        return b"\x40" + len(value.encode()).to_bytes(4, "little") + value.encode()
    items = sorted(value.items()) if isinstance(value, dict) else [("", v) for v in value]
    parts = [encoded(v, names) for _, v in items]
    ids = [names.index(n) for n, _ in items] if isinstance(value, dict) else []
    # Values are stored in reverse order of their names.
    stops = [sum(map(len, parts[i + 1 :])) for i in range(len(parts))] + [sum(map(len, parts))]
    if not isinstance(value, dict):
        stops, body = [sum(map(len, parts[:i])) for i in range(len(parts) + 1)], b"".join(parts)
    else:
        body = b"".join(reversed(parts))
    numbers = b"".join(n.to_bytes(4, "little") for n in (len(items), *ids, *stops))
    return (b"\x7e" if isinstance(value, dict) else b"\x1f") + numbers + body


_ABSENT = object()


def _shred(value: Any, kind: Any, names: list[str]) -> dict[str, Any]:
    """A value as a group of ``value`` and ``typed_value``; ``kind`` is a type, a list of a kind, or kinds by name."""
    group: dict[str, Any] = {"value": None, "typed_value": None}
    if value is _ABSENT:
        return group
    if isinstance(kind, dict) and isinstance(value, dict):
        rest = {k: v for k, v in value.items() if k not in kind}
        group["typed_value"] = {n: _shred(value.get(n, _ABSENT), k, names) for n, k in kind.items()}
        group["value"] = encoded(rest, names) if rest else None
    elif isinstance(kind, list) and isinstance(value, list):
        group["typed_value"] = [_shred(v, kind[0], names) for v in value]
    elif isinstance(kind, type) and type(value) is kind:
        group["typed_value"] = value
    else:
        group["value"] = encoded(value, names)
    return group


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, dict):
        typed = pa.struct([(n, _arrow(k)) for n, k in kind.items()])
    else:
        typed = pa.list_(_arrow(kind[0])) if isinstance(kind, list) else {int: pa.int64(), str: pa.string()}[kind]
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(TREES | st.just(_ABSENT), min_size=1, max_size=6),
    st.sampled_from([int, str, [int], {"a": int}, {"zz": {"b": [str], "a": int}, "b": [{"a": str}]}, [{"é": int}]]),
    st.booleans(),
)
def test_any_shredded_variant_round_trips(values: list[Any], kind: Any, sliced: bool) -> None:
    names = ["zz", "b", "unused", "é", "a"]
    data = [n.encode() for n in names]
    ends = bytes(sum(map(len, data[:i])) for i in range(len(names) + 1))
    metadata = bytes([1, len(names)]) + ends + b"".join(data)
    rows = [None if v is _ABSENT else {"metadata": metadata, **_shred(v, kind, names)} for v in values]
    array = pa.array(rows, pa.struct([pa.field("metadata", pa.binary()), *_arrow(kind)]))
    out = io.BytesIO()
    pq.write_table(pa.table({"v": array}), out)
    for read in (array, pq.read_table(out)["v"].combine_chunks()):
        expected = [... if v is _ABSENT else v for v in values]
        start = len(values) // 2 if sliced else 0
        assert decoded(unshredded(read[start:], "v")) == expected[start:]


NOON = dt.datetime(2020, 1, 2, 12, 30, 0, 5)


@pytest.mark.parametrize(
    ("type_", "value", "expected", "kind"),
    [
        (pa.int64(), 5, 5, 3),
        (pa.int64(), -129, -129, 4),
        (pa.int32(), 2**31 - 1, 2**31 - 1, 5),
        (pa.int64(), -(2**63), -(2**63), 6),
        (pa.bool_(), False, False, 2),
        (pa.float32(), 0.5, 0.5, 14),
        (pa.float64(), 0.1, 0.1, 7),
        (pa.decimal128(18, 2), decimal.Decimal("-1.50"), decimal.Decimal("-1.50"), 8),
        (pa.decimal128(18, 2), decimal.Decimal("12345678.90"), decimal.Decimal("12345678.90"), 9),
        (pa.decimal128(38, 3), -decimal.Decimal(10**34), -decimal.Decimal(10**34), 10),
        (pa.date32(), NOON.date(), NOON.date(), 11),
        (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC), 12),
        (pa.timestamp("us"), NOON, NOON, 13),
        (pa.binary(), b"\x00\xff", b"\x00\xff", 15),
        (pa.string(), "é" * 40, "é" * 40, 16),
        (pa.large_string(), "", "", None),
        (pa.time64("us"), NOON.time(), None, 17),
        (pa.timestamp("ns", "UTC"), NOON.replace(tzinfo=dt.UTC), None, 18),
        (pa.timestamp("ns"), NOON, None, 19),
        (pa.binary(16), uuid.UUID(int=7).bytes, None, 20),
    ],
)
def test_typed_values_are_encoded_with_their_type(
    type_: pa.DataType, value: Any, expected: Any, kind: int | None
) -> None:
    rows = [{"metadata": EMPTY, "typed_value": v} for v in (value, None, value)]
    array = pa.array(rows, pa.struct([("metadata", pa.binary()), ("typed_value", type_)]))[1:]
    values = unshredded(array, "v").field("value").to_pylist()
    assert values[0] == b"\x00", "missing where a value is required: null"
    if kind is not None:
        assert values[1][0] == kind << 2
    if expected is not None:
        assert VariantUtils.to_python(values[1], EMPTY) == expected


OBJECT_A = b"\x02\x01\x00\x00\x02\x0c\x01"


@pytest.mark.parametrize(
    ("row", "typed", "says"),
    [
        ({"metadata": EMPTY, "value": b"\x00", "typed_value": 1}, pa.int64(), "a value and a typed value"),
        ({"metadata": EMPTY, "value": b"\x00", "typed_value": {"a": None}}, {"a": pa.int64()}, "not an object"),
        ({"metadata": EMPTY, "typed_value": {"a": {"typed_value": 1}}}, {"a": pa.int64()}, "lacks the name"),
        ({"metadata": WITH_A, "value": OBJECT_A, "typed_value": {"a": {"typed_value": 1}}}, {"a": pa.int64()}, "both"),
        ({"metadata": b"", "typed_value": 1}, pa.int64(), "a version other than 1"),
        ({"metadata": b"\x02\x00\x00", "typed_value": 1}, pa.int64(), "a version other than 1"),
        ({"metadata": b"\x01", "typed_value": 1}, pa.int64(), "within a number"),
        ({"metadata": b"\xc1\xff\xff\xff\xff", "typed_value": 1}, pa.int64(), "list of names"),
        ({"metadata": b"\x01\x01\x00\x09a", "typed_value": 1}, pa.int64(), "past its end"),
        ({"metadata": b"\x01\x02\x00\x02\x01ab", "typed_value": 1}, pa.int64(), "overlap"),
        (
            {"metadata": WITH_A, "value": b"\x42\xff\xff\xff\xff", "typed_value": {"b": None}},
            {"b": pa.int64()},
            "fields",
        ),
        ({"metadata": WITH_A, "value": OBJECT_A[:5], "typed_value": {"b": None}}, {"b": pa.int64()}, "past its end"),
        ({"metadata": EMPTY, "value": OBJECT_A, "typed_value": {"b": None}}, {"b": pa.int64()}, "metadata lacks"),
        ({"metadata": EMPTY, "typed_value": 1}, pa.uint32(), "uint32"),
        ({"metadata": None, "typed_value": 1}, pa.int64(), "no metadata"),
        ({"typed_value": 1}, pa.int64(), "no column metadata"),
        ({"metadata": EMPTY, "typed_value": {"a": 1}}, None, "not a struct of value and typed_value"),
    ],
)
def test_malformed_shredded_variant_is_rejected(row: dict[str, Any], typed: Any, says: str) -> None:
    if isinstance(typed, dict):
        inner = {n: pa.struct([("value", pa.binary()), ("typed_value", t)]) for n, t in typed.items()}
        typed = pa.struct(list(inner.items()))
    fields = [(n, typed if n == "typed_value" and typed is not None else None) for n in row]
    types = [(n, t or (pa.struct([("a", pa.int64())]) if n == "typed_value" else pa.binary())) for n, t in fields]
    with pytest.raises(CorruptFileError, match=rf"{says}.*\(column: v"):
        unshredded(pa.array([row], pa.struct(types)), "v")
