"""UPDATE: values and their types, nested fields, table rules, row ids, the change feed, errors.

The comparison with an oracle is in test_delete.py, together with DELETE.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import opened, rows
from trilake.delta.commands.write.update import update_rows
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConcurrentDeleteDeleteError,
    ConflictError,
    ConstraintViolatedError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TrilakeError,
    UnsupportedExpressionError,
)

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
BOTH_WAYS = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])


def _rows(uri: Any) -> list[dict[str, Any]]:
    result = rows(opened(uri).to_arrow())
    return sorted(result, key=lambda r: (str(r.get("id")), str(r)))


def _numbers(uri: Any, *ids: int, **options: Any) -> None:
    data = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([i * 10 for i in ids], pa.int32())})
    trilake.write(data, str(uri), mode="append", **options)


# --- changed files ---------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_only_files_with_matching_rows_are_changed(tmp_path: Path, properties: Mapping[str, str]) -> None:
    for start in (0, 10, 20):
        _numbers(tmp_path, start, start + 5, start + 9, properties=properties if not start else None)
    before = set(opened(tmp_path).files()["path"].to_pylist())
    result = opened(tmp_path).update({"v": "v + id"}, "id = 5 OR id = 13")
    kept = before & set(opened(tmp_path).files()["path"].to_pylist())
    assert len(kept) == (3 if properties else 2)
    expected = {"numUpdatedRows": 1, "numCopiedRows": 0 if properties else 2, "numAddedFiles": 1}
    expected |= {"numRemovedFiles": 0 if properties else 1, "numDeletionVectorsAdded": 1 if properties else 0}
    assert {k: result.metrics[k] for k in expected} == expected
    assert {r["id"]: r["v"] for r in _rows(tmp_path)} == {i: i * 10 for i in (0, 9, 10, 15, 19, 20, 25, 29)} | {5: 55}
    assert repr(result).startswith("<UPDATE version 3: 1 rows updated")


@BOTH_WAYS
def test_updated_rows_go_into_few_new_files(tmp_path: Path, properties: Mapping[str, str]) -> None:
    for start in range(8):
        _numbers(tmp_path, start * 2, start * 2 + 1, properties=properties if not start else None)
    result = opened(tmp_path).update({"v": 7}, "id % 2 = 0")
    assert result.rows == 8
    assert result.metrics["numAddedFiles"] <= 4
    assert sorted(r["v"] for r in _rows(tmp_path)) == sorted([7] * 8 + [i * 10 for i in range(1, 16, 2)])


def test_update_without_matches_does_not_commit(tmp_path: Path) -> None:
    _numbers(tmp_path, 1, 2, 3)
    result = opened(tmp_path).update({"v": "0"}, "id = 2 AND v = 30")
    assert (result.committed, result.version, result.rows) == (False, 0, 0)
    assert not list((tmp_path / "_delta_log").glob("*1.json"))


def test_commit_info_and_metrics(tmp_path: Path) -> None:
    _numbers(tmp_path, 1, 2, 3)
    result = opened(tmp_path).update({"v": "0"}, "id >= 2", user_metadata="why")
    (info, *_) = [orjson.loads(x) for x in (tmp_path / "_delta_log" / f"{1:020}.json").read_bytes().splitlines()]
    info = info["commitInfo"]
    assert (info["operation"], info["userMetadata"], info["isBlindAppend"]) == ("UPDATE", "why", False)
    assert orjson.loads(info["operationParameters"]["predicate"]) == ["id >= 2"]
    assert {k: int(v) for k, v in info["operationMetrics"].items()} | {"executionTimeMs": 0} == {
        **result.metrics,
        "executionTimeMs": 0,
    }


# --- values ----------------------------------------------------------------------------------------------------------

_TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("b", pa.int8()),
        ("f", pa.float32()),
        ("m", pa.decimal128(6, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("z", pa.binary()),
        ("l", pa.list_(pa.int32())),
        ("o", pa.struct([("a", pa.int64()), ("c d", pa.struct([("e", pa.string())]))])),
    ]
)


def _typed(tmp_path: Path) -> str:
    data = pa.Table.from_pylist([{"id": 1}, {"id": 2, "o": {"a": 5, "c d": None}}], schema=_TYPES)
    trilake.write(data, str(tmp_path), properties={"delta.columnMapping.mode": "name"})
    return str(tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("b", "id + 100", 101),
        ("b", 7, 7),
        ("b", "'12'", 12),
        ("b", "1.9", 1),
        ("f", "id / 2", 0.5),
        ("m", "1.005", Decimal("1.01")),
        ("m", Decimal("2.50"), Decimal("2.50")),
        ("s", "id", "1"),
        ("s", "'it''s'", "it's"),
        ("d", "'2024-02-29'", dt.date(2024, 2, 29)),
        ("d", dt.date(2024, 3, 1), dt.date(2024, 3, 1)),
        ("t", "d", None),
        ("t", "timestamp'2024-01-01 12:00:00'", dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)),
        ("t", dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)),
        ("z", b"\0\xff", b"\0\xff"),
        ("l", [1, None], [1, None]),
        ("l", "l", None),
        ("o", {"a": 4}, {"a": 4, "c d": None}),
        ("o.a", "id * 2", {"a": 2, "c d": None}),
        ("O.`C D`.e", "'deep'", {"a": None, "c d": {"e": "deep"}}),
        ("s", None, None),
        ("s", pa.scalar("'quoted'"), "'quoted'"),
        ("b", pa.scalar(3, pa.int64()), 3),
    ],
)
def test_values_are_cast_to_the_column_type(tmp_path: Path, column: str, value: Any, expected: Any) -> None:
    uri = _typed(tmp_path)
    opened(uri).update({column: value}, "id = 1")
    result = {r["id"]: r for r in _rows(uri)}
    top = column.partition(".")[0].lower()
    assert result[1] == {**dict.fromkeys(_TYPES.names), "id": 1, top: expected}
    assert result[2]["o"] == {"a": 5, "c d": None}


@pytest.mark.parametrize(
    ("set", "error", "text"),
    [
        ({"b": "id + 200"}, ExpressionError, "out of range"),
        ({"b": 300}, SchemaMismatchError, "not a value of type byte"),
        ({"b": "'x'"}, ExpressionError, "cannot be cast"),
        ({"m": "123456"}, ExpressionError, None),
        ({"b": "true"}, ExpressionError, "cannot be stored"),
        ({"s": "l"}, ExpressionError, "cannot be stored"),
        ({"b": "10 / (id - 1)"}, ExpressionError, "division by zero"),
        ({"b": "nope"}, ExpressionError, "nope"),
        ({"nope": "1"}, SchemaMismatchError, "no column nope"),
        ({"o.nope": "1"}, SchemaMismatchError, "nope"),
        ({"o": "1"}, ExpressionError, None),
        ({"l.element": "1"}, InvalidArgumentError, "array or map"),
        ({"o": "NULL", "o.a": "1"}, InvalidArgumentError, "conflict from these SET columns"),
        ({"b": "1", "B": "2"}, InvalidArgumentError, "conflict from these SET columns"),
        ({"b": "rand()"}, ExpressionError, "not deterministic"),
        ({"b": "count(id)"}, ExpressionError, "aggregate"),
        ({"s": "soundex(s)"}, UnsupportedExpressionError, "only Spark"),
    ],
)
def test_invalid_values_change_nothing(tmp_path: Path, set: Any, error: type[TrilakeError], text: str) -> None:
    uri = _typed(tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    with pytest.raises(error, match=text):
        opened(uri).update(set)
    assert (opened(uri).version, {p.name for p in tmp_path.iterdir()}) == (0, before)


def test_values_are_computed_from_the_old_row(tmp_path: Path) -> None:
    trilake.write(pa.table({"a": [1, 2], "b": [10, 20]}), str(tmp_path))
    opened(tmp_path).update({"a": "b", "b": "a"})
    assert _rows(tmp_path) == [{"a": 10, "b": 1}, {"a": 20, "b": 2}]


# --- rules of the table ----------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_violated_constraint_leaves_nothing_behind(tmp_path: Path, properties: Mapping[str, str]) -> None:
    _numbers(tmp_path, 1, 2, properties=properties)
    _numbers(tmp_path, 3, 4)
    trilake.alter(str(tmp_path)).add_constraint("small", "v < 100")
    trilake.alter(str(tmp_path)).set_not_null("id")
    files = set(tmp_path.glob("*.parquet"))
    version = opened(tmp_path).version
    with pytest.raises(ConstraintViolatedError, match=r"small.*v = 120"):
        opened(tmp_path).update({"v": "v * 3"})
    with pytest.raises(ConstraintViolatedError, match="id"):
        opened(tmp_path).update({"id": "nullif(id, 3)"})
    assert (set(tmp_path.glob("*.parquet")), opened(tmp_path).version) == (files, version)
    opened(tmp_path).update({"v": "v * 2"})
    assert [r["v"] for r in _rows(tmp_path)] == [20, 40, 60, 80]


def test_generated_columns_are_recomputed(tmp_path: Path) -> None:
    uri = str(tmp_path)
    schema = StructType(
        (
            StructField("id", PrimitiveType("long")),
            StructField("twice", PrimitiveType("long"), True, {"delta.generationExpression": "id * 2"}),
        )
    )
    trilake.create(uri, schema, partition_by=["twice"])
    trilake.write(pa.table({"id": [1, 2]}), uri, mode="append")
    opened(uri).update({"id": "id + 10"}, "twice = 2")
    assert _rows(uri) == [{"id": 11, "twice": 22}, {"id": 2, "twice": 4}]
    opened(uri).update({"id": "5", "twice": "10"}, "id = 2")
    with pytest.raises(ConstraintViolatedError, match="twice"):
        opened(uri).update({"twice": "1"})
    assert _rows(uri) == [{"id": 11, "twice": 22}, {"id": 5, "twice": 10}]


def test_identity_columns_are_kept(tmp_path: Path) -> None:
    uri = str(tmp_path)
    identity = StructField("n", PrimitiveType("long"), True, identity_metadata(5, 5))
    trilake.create(uri, StructType((identity, StructField("s", PrimitiveType("string")))))
    trilake.write(pa.table({"s": ["a", "b"]}), uri, mode="append")
    opened(uri).update({"s": "'c'"}, "s = 'a'")
    assert sorted(opened(uri).to_arrow()["n"].to_pylist()) == [5, 10]
    with pytest.raises(InvalidArgumentError, match="identity column"):
        opened(uri).update({"n": "1"})


def test_varchar_length_is_checked(tmp_path: Path) -> None:
    uri = str(tmp_path)
    trilake.create(uri, {"c": "varchar(3)", "id": "long"})
    trilake.write(pa.table({"c": ["a"], "id": [1]}), uri, mode="append")
    with pytest.raises(ConstraintViolatedError):
        opened(uri).update({"c": "'long text'"})
    opened(uri).update({"c": "'abc'"})
    assert _rows(uri) == [{"c": "abc", "id": 1}]


@BOTH_WAYS
def test_rows_move_to_their_new_partition(tmp_path: Path, properties: Mapping[str, str]) -> None:
    uri = str(tmp_path)
    data = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]})
    trilake.write(data, uri, partition_by=["p"], properties=properties)
    opened(uri).update({"p": "concat(p, '!')"}, "id <> 1")
    assert _rows(uri) == [{"id": 1, "p": "a"}, {"id": 2, "p": "a!"}, {"id": 3, "p": "b!"}]
    assert opened(uri).count("p = 'b!'") == 1
    assert {f["partition_values"][0][1] for f in opened(uri).files().to_pylist()} == {"a", "a!", "b!"}


@BOTH_WAYS
def test_updated_rows_keep_their_row_ids(tmp_path: Path, properties: Mapping[str, str]) -> None:
    uri = str(tmp_path)
    _numbers(uri, 1, 2, 3, properties={**properties, "delta.enableRowTracking": "true"})
    opened(uri).update({"v": "0"}, "id = 2")
    opened(uri).update({"v": "1"}, "id >= 2")
    table = opened(uri)
    conf = table.metadata.configuration
    names = [conf[f"delta.rowTracking.materializedRow{n}ColumnName"] for n in ("Id", "CommitVersion")]
    result: dict[int, tuple[int, int]] = {}
    for add in table.snapshot.adds.to_pylist():
        data = pq.read_table(tmp_path / add["path"])
        gone = add["deletionVector"] is not None
        for i, row in enumerate(data.to_pylist()):
            row_id = row.get(names[0])
            version = row.get(names[1])
            if not (gone and row["id"] != 1):
                result[row["id"]] = (
                    add["baseRowId"] + i if row_id is None else row_id,
                    add["defaultRowCommitVersion"] if version is None else version,
                )
    assert result == {1: (0, 0), 2: (1, 2), 3: (2, 2)}


# --- the change feed -------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_change_feed_has_pre_and_postimages(tmp_path: Path, properties: Mapping[str, str]) -> None:
    uri = str(tmp_path)
    _numbers(uri, 1, 2, 3, properties={**properties, **FEED})
    _numbers(uri, 4, 5)
    opened(uri).update({"v": "v + 1"}, "id in (2, 4, 5)")
    changes = sorted((c["id"], c["_change_type"], c["v"]) for c in opened(uri).changes(2).to_pylist())
    assert changes == [
        *((2, "update_postimage", 21), (2, "update_preimage", 20)),
        *((4, "update_postimage", 41), (4, "update_preimage", 40)),
        *((5, "update_postimage", 51), (5, "update_preimage", 50)),
    ]


# --- concurrency, errors ---------------------------------------------------------------------------------------------


def test_concurrent_updates_of_one_file_conflict(tmp_path: Path) -> None:
    uri = str(tmp_path)
    _numbers(uri, 1, 2, 3, properties=VECTORS)
    base = opened(uri)
    opened(uri).update({"v": "0"}, "id = 1")
    files = set(tmp_path.glob("*.parquet"))
    with pytest.raises(ConflictError) as error:
        update_rows(base.log, base.snapshot, {"v": "1"})
    assert not isinstance(error.value, ConcurrentDeleteDeleteError)  # the rows added by the winner are checked first
    assert set(tmp_path.glob("*.parquet")) == files
    assert [r["v"] for r in _rows(uri)] == [0, 20, 30]


def test_concurrent_append_does_not_conflict(tmp_path: Path) -> None:
    uri = str(tmp_path)
    _numbers(uri, 1, 2, 3)
    base = opened(uri)
    _numbers(uri, 2)
    assert update_rows(base.log, base.snapshot, {"v": "0"}).version == 2
    assert sorted((r["id"], r["v"]) for r in _rows(uri)) == [(1, 0), (2, 0), (2, 20), (3, 0)]


def test_append_only_table_is_rejected(tmp_path: Path) -> None:
    _numbers(tmp_path, 1, properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        opened(tmp_path).update({"v": "1"})


# --- nested values ---------------------------------------------------------------------------------------------------

PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
SWAPPED = pa.struct([("B", pa.string()), ("A", pa.int64())])
#: How each column of ``_nested`` wraps a struct.
WRAPPED = {"s": lambda v: v, "l": lambda v: [v], "m": lambda v: [("k", v)]}


def _nested(path: Path, **more: tuple[pa.DataType, Any]) -> ArrowDeltaTable:
    one = {"a": 1, "b": "x"}
    types: dict[str, pa.DataType] = {"s": PAIR, "l": pa.list_(PAIR), "m": pa.map_(pa.string(), PAIR)}
    columns = {name: pa.array([WRAPPED[name](one)], kind) for name, kind in types.items()}
    columns |= {name: pa.array([value], kind) for name, (kind, value) in more.items()}
    trilake.write(pa.table({"id": [1], **columns}), path)
    return opened(path)


@pytest.mark.parametrize("column", list(WRAPPED))
def test_nested_fields_are_matched_by_name(tmp_path: Path, column: str) -> None:
    new = {"a": 5, "b": "q"}
    kind = {"s": SWAPPED, "l": pa.list_(SWAPPED), "m": pa.map_(pa.string(), SWAPPED)}[column]
    swapped = WRAPPED[column]({"B": "q", "A": 5})
    t = _nested(tmp_path, other=(kind, swapped))
    for value in (swapped, pa.scalar(swapped, kind), "other"):
        t.update({column: WRAPPED[column]({"a": 0, "b": None})})
        t.update({column: value})
        assert _rows(tmp_path)[0][column] == WRAPPED[column](new)
    if column == "m":
        t.update({column: {"k": {"b": "r", "a": 6}}})
        assert _rows(tmp_path)[0][column] == [("k", {"a": 6, "b": "r"})]


@pytest.mark.parametrize("column", list(WRAPPED))
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": 5, "b": "q", "z": 9}, "has a field z, which the column lacks"),
        ({"x": 5, "y": "q"}, "has a field x, which the column lacks"),
        ({"a": 5}, "has no field b, which the column has"),
        ({"a": 5, "A": 6, "b": "q"}, "has two fields with the same name: a, A, b"),
    ],
)
def test_nested_values_with_other_fields_are_rejected(
    tmp_path: Path, column: str, value: dict[str, Any], problem: str
) -> None:
    struct = pa.struct([(n, pa.string() if n in "by" else pa.int64()) for n in value])
    kind = {"s": struct, "l": pa.list_(struct), "m": pa.map_(pa.string(), struct)}[column]
    wrapped = WRAPPED[column](value)
    if "A" in value:  # a table cannot have two columns with one name
        t, rejected = _nested(tmp_path), [wrapped]
    elif len(value) == 1:  # a literal treats the missing field as null, a column does not
        t, rejected = _nested(tmp_path, other=(kind, wrapped)), ["other"]
    else:
        t, rejected = _nested(tmp_path, other=(kind, wrapped)), [wrapped, pa.scalar(wrapped, kind), "other"]
    for new in rejected:
        with pytest.raises(SchemaMismatchError, match=rf"the struct for column {column}.* {problem}"):
            t.update({column: new})
    assert opened(tmp_path).version == 0
