"""MERGE without Spark: nested columns, schema evolution and errors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.commands.merge.merge_tables import FEED, SOURCE, letters, pairs, rows, table
from trilake.errors import (
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnsupportedExpressionError,
)

# --- nested columns and evolution ------------------------------------------------------------------------------------


def test_nested_fields_are_assigned_individually() -> None:
    t = table(pa.table({"id": [1, 2], "st": [{"a": 1, "b": {"c": "x", "d": 2}}, None]}))
    t.merge(pa.table({"id": [1, 2]}), "t.id = s.id", "s", "t").when_matched_update(
        {"t.st.b.c": "concat('new', s.id)", "st.a": "t.st.a + 5"}
    ).execute()
    assert [r["st"] for r in rows(t, "id")] == [
        {"a": 6, "b": {"c": "new1", "d": 2}},
        {"a": None, "b": {"c": "new2", "d": None}},
    ]


def test_change_feed_records_updates_with_not_null_columns() -> None:
    field = pa.field("st", pa.struct([pa.field("x", pa.int64(), nullable=False)]))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), field, pa.field("v", pa.string())])
    t = table(pa.table({"id": [1, 2], "st": [{"x": 1}, None], "v": ["a", "b"]}, schema=schema), FEED)
    merge = t.merge(pa.table({"id": [1, 3], "v": ["n", "m"]}), "t.id = s.id", "s", "t")
    merge.when_matched_update({"v": "s.v"}).when_not_matched_insert({"id": "s.id", "v": "s.v"}).execute()
    feed = t.refresh().changes(1).select(["id", "v", "_change_type"]).to_pylist()
    assert sorted(tuple(r.values()) for r in feed) == [
        (1, "a", "update_preimage"),
        (1, "n", "update_postimage"),
        (3, "m", "insert"),
    ]


def test_evolution_adds_columns_and_keeps_missing_ones() -> None:
    t = table(pa.table({"id": [1, 2], "a": [10, 20], "st": [{"x": 1, "y": 1}, {"x": 2, "y": 2}]}))
    source = pa.table({"id": [2, 3], "new": ["b", "c"], "st": [{"x": 20, "z": 9}, {"x": 30, "z": 9}]})
    merge = t.merge(source, "t.id = s.id", "s", "t").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(SchemaMismatchError, match="cannot resolve a in"):
        merge.execute()
    merge.with_schema_evolution().execute()
    assert rows(t, "id") == [
        {"id": 1, "a": 10, "st": {"x": 1, "y": 1, "z": None}, "new": None},
        {"id": 2, "a": 20, "st": {"x": 20, "y": 2, "z": 9}, "new": "b"},
        {"id": 3, "a": None, "st": {"x": 30, "y": None, "z": 9}, "new": "c"},
    ]
    # An explicit assignment adds only the column it names.
    t = letters()
    more = SOURCE.append_column("note", pa.array(["n"] * 4)).append_column("other", pa.array([1] * 4))
    t.merge(more, "key = k").when_matched_update({"note": "note"}).with_schema_evolution().execute()
    assert t.refresh().schema.names == ["key", "value", "note"]
    assert {r["key"]: r["note"] for r in rows(t, "key")} == {"a": "n", "b": "n", "c": None, "d": None}


@pytest.mark.parametrize("old", [{"y": 2, "in": {"d": 4, "e": 5}}, {"y": 2, "in": None}, None])
@pytest.mark.parametrize("new", [{"x": 1, "in": {"d": 9}}, {"x": 1, "in": None}, None])
def test_null_source_struct_keeps_other_target_fields(old: Any, new: Any) -> None:
    inner = pa.struct({"d": pa.int64(), "e": pa.int64()})
    t = table(pa.table({"id": [1], "st": pa.array([old], pa.struct({"y": pa.int64(), "in": inner}))}))
    type_ = pa.struct({"x": pa.int64(), "in": pa.struct({"d": pa.int64()})})
    source = pa.table({"id": [1, 2], "st": pa.array([new] * 2, type_)})
    merge = t.merge(source, "t.id = s.id", "s", "t").when_matched_update_all().when_not_matched_insert_all()
    merge.with_schema_evolution().execute()

    def merged(old: Any, new: Any) -> Any:
        if old is None and new is None:
            return None
        was, given = (old or {}), (new or {})
        d, e = (given.get("in") or {}).get("d"), (was.get("in") or {}).get("e")
        both = None if was.get("in") is None and given.get("in") is None else {"d": d, "e": e}
        return {"y": was.get("y"), "in": both, "x": given.get("x")}

    assert [r["st"] for r in rows(t, "id")] == [merged(old, new), merged(None, new)]


def test_evolution_widens_types_only_if_enabled() -> None:
    for allowed in (True, False):
        t = table(pa.table({"key": ["a"], "n": pa.array([1], pa.int32())}), {"delta.enableTypeWidening": str(allowed)})
        source = pa.table({"key": ["a", "b"], "n": [5, 1 << 40]})
        merge = t.merge(source, "t.key = s.key", "s", "t").when_matched_update_all().when_not_matched_insert_all()
        if allowed:
            merge.with_schema_evolution().execute()
            assert t.refresh().schema.field("n").type == pa.int64()
            assert [r["n"] for r in rows(t, "key")] == [5, 1 << 40]
        else:
            with pytest.raises(SchemaMismatchError, match="does not fit"):
                merge.with_schema_evolution().execute()
            assert t.refresh().version == 0


def test_values_are_stored_like_in_spark() -> None:
    t = table(pa.table({"key": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "d": pa.array([0, 0], pa.date32())}))
    source = pa.table({"key": ["a"], "big": [1 << 40], "text": ["12"]})
    merge = t.merge(source, "t.key = s.key", "s", "t")
    merge.when_matched_update({"n": "s.text", "d": "'2024-02-03'"}).execute()
    assert [(r["n"], str(r["d"])) for r in rows(t, "key")] == [(12, "2024-02-03"), (2, "1970-01-01")]
    for wrong in ("s.big", "'text'"):
        with pytest.raises(ExpressionError):
            merge.when_matched_update({"n": wrong}).execute()


def _cast_cases() -> list[Any]:
    when, day = dt.datetime(2024, 5, 1, 7), dt.date(2024, 5, 1)  # noqa: DTZ001 - the column has no zone
    inner = [pa.field("a", pa.string())]
    return [
        (pa.array(["7"]), pa.int64(), 7),
        (pa.array(["1.5"]), pa.decimal128(5, 2), Decimal("1.50")),
        (pa.array(["2024-05-01"]), pa.date32(), day),
        (pa.array(["a"]), pa.binary(), b"a"),
        (pa.array([7]), pa.string(), "7"),
        (pa.array([True]), pa.string(), "true"),
        (pa.array([when], pa.timestamp("us")), pa.date32(), day),
        (pa.array([when], pa.timestamp("us", "UTC")), pa.timestamp("us"), when),
        (pa.array([["7", None]]), pa.list_(pa.int64()), [7, None]),
        (pa.array([{"a": "7"}], pa.struct(inner)), pa.struct([pa.field("a", pa.int64())]), {"a": 7}),
    ]


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize(("given", "kind", "stored"), _cast_cases())
def test_star_casts_like_an_assignment(given: pa.Array, kind: pa.DataType, stored: Any, evolve: bool) -> None:
    """Like delta-spark, which expands a star to assignments."""
    source = pa.table({"id": [1, 2], "v": pa.chunked_array([given, given])})
    for star in (True, False):
        t = table(pa.table({"id": [1], "v": pa.array([None], kind)}))
        merge = t.merge(source, "t.id = s.id", "s", "t")
        merge = merge.with_schema_evolution() if evolve else merge
        if star:
            merge = merge.when_matched_update_all().when_not_matched_insert_all()
        else:
            merge = merge.when_matched_update({"v": "s.v"}).when_not_matched_insert({"id": "s.id", "v": "s.v"})
        merge.execute()
        assert rows(t, "id") == [{"id": 1, "v": stored}, {"id": 2, "v": stored}]


@pytest.mark.parametrize(
    ("given", "kind", "error"),
    [
        ("x", pa.int64(), ExpressionError),  # the value, not its type
        ("x", pa.date32(), ExpressionError),
        (True, pa.int32(), SchemaMismatchError),
        (1.5, pa.int32(), SchemaMismatchError),
        ("x", pa.list_(pa.int64()), SchemaMismatchError),
        ({"a": "x"}, pa.struct([pa.field("a", pa.int64())]), SchemaMismatchError),
        ({"a": 1}, pa.string(), SchemaMismatchError),
    ],
)
def test_star_rejects_values_that_cannot_be_cast(given: Any, kind: pa.DataType, error: type[Exception]) -> None:
    t = table(pa.table({"id": [1], "v": pa.array([None], kind)}))
    merge = t.merge(pa.table({"id": [1], "v": [given]}), "t.id = s.id", "s", "t")
    with pytest.raises(error, match=r"\bv\b"):
        merge.when_matched_update_all().execute()
    assert t.refresh().version == 0


def test_expression_error_shows_the_sql() -> None:
    t = table(pa.table({"id": [1, 2]}))
    change = {"id": "'a' || 'b'"}
    merge = t.merge(pa.table({"id": [1]}), "t.id = s.id", "s", "t").when_matched_update(change)
    with pytest.raises(ExpressionError, match=r"\] 'a' \|\| 'b' fails on a row: a string cannot be cast to bigint: ab"):
        merge.execute()
    with pytest.raises(ExpressionError, match=r"\] 'a' \|\| 'b' fails on a row: a string cannot be cast to bigint: ab"):
        t.update(change)


def test_star_may_exclude_columns() -> None:
    t = table(pa.table({"key": ["a"], "value": [1], "n": [1]}))
    source = pa.table({"key": ["a", "b"], "value": [5, 6], "n": [7, 8]})
    merge = t.merge(source, "t.key = s.key", "s", "t").when_matched_update_all(except_cols=["N"])
    merge.when_not_matched_insert_all(except_cols=["value"]).execute()
    assert rows(t, "key") == [{"key": "a", "value": 5, "n": 1}, {"key": "b", "value": None, "n": 8}]


# --- errors ----------------------------------------------------------------------------------------------------------


def test_invalid_clauses_are_rejected() -> None:
    t = table(pa.table({"key": ["a"], "value": [1], "st": [{"x": 1}]}))
    source = pa.table({"key": ["a"], "value": [2], "only": [1]})
    m = t.merge(source, "t.key = s.key", "s", "t")
    wrong: list[tuple[Any, type[Exception], str]] = [
        (m, InvalidArgumentError, "at least one WHEN clause"),
        (m.when_matched_delete().when_matched_update_all(), InvalidArgumentError, "only the last one can omit"),
        (m.when_matched_update({"nothing": "1"}), InvalidArgumentError, "cannot resolve nothing"),
        (m.when_matched_update({"key.x": "1"}), InvalidArgumentError, "not a struct"),
        (m.when_matched_update({"st": "NULL", "t.st.x": "1"}), InvalidArgumentError, "conflict"),
        (m.when_matched_update({"value": "1", "VALUE": "2"}), InvalidArgumentError, "conflict"),
        (m.when_not_matched_insert({"st.x": "1"}), InvalidArgumentError, "nested field"),
        (m.when_matched_update({"value": "value"}), ExpressionError, "ambiguous"),
        (m.when_matched_update({"value": "nothing + 1"}), ExpressionError, "cannot resolve nothing"),
        (m.when_not_matched_insert({"value": "t.value"}), ExpressionError, "cannot resolve"),
        (m.when_not_matched_by_source_update({"value": "only"}), ExpressionError, "cannot resolve only"),
        (m.when_matched_delete("s.value"), ExpressionError, "must be boolean"),
        (m.when_matched_delete('"value" > 0'), ExpressionError, "compares a string, not the column"),
        (t.merge(source, '"key" = "only"').when_matched_delete(), ExpressionError, "compares a string, not the column"),
        (m.when_matched_update({"st": "1"}), Exception, "st"),
        (m.when_matched_update({"value": "sum(s.value)"}), ExpressionError, "aggregate"),
        (m.when_matched_update({"value": "some_udf(s.value)"}), UnsupportedExpressionError, "only Spark"),
        (m.when_matched_update_all(), SchemaMismatchError, "cannot resolve st"),
        (t.merge(source, "key = key").when_matched_delete(), ExpressionError, "ambiguous"),
        (t.merge(source, "t.key = s.key", "s", "S").when_matched_delete(), InvalidArgumentError, "same alias"),
        (t.merge(1, "key = 1").when_matched_delete(), InvalidArgumentError, "source of a merge"),
    ]
    for builder, error, text in wrong:
        with pytest.raises(error, match=text):
            builder.execute()
    assert t.refresh().version == 0
    calls: list[tuple[Any, str]] = [
        (lambda: t.merge(source, 1), "on must be a string"),  # type: ignore[arg-type]
        (lambda: m.when_matched_update({"value": 1}), "a SQL string"),  # type: ignore[dict-item]
        (lambda: m.when_matched_update("value"), "mapping"),  # type: ignore[arg-type]
        (lambda: m.when_matched_delete(1), "predicate"),  # type: ignore[arg-type]
        (lambda: m.when_matched_update_all(except_cols="key"), "except_cols"),
    ]
    for call, text in calls:
        with pytest.raises(InvalidArgumentError, match=text):
            call()


def test_failed_merge_leaves_nothing_behind() -> None:
    t = letters(FEED)
    before = {o.key for o in t.log.store.list()}
    merge = t.merge(SOURCE, "key = k").when_matched_update({"value": "v"})
    with pytest.raises(ExpressionError):
        merge.when_not_matched_insert({"key": "k", "value": "v / (v + 5)"}).execute()
    with pytest.raises(ExpressionError, match="merge condition"):
        t.merge(SOURCE, "key = k AND 1 div (v + 1) > 0").when_matched_delete().execute()
    assert {o.key for o in t.log.store.list()} == before


def test_merge_builders_are_immutable() -> None:
    t = letters()
    base = t.merge(SOURCE, "key = k")
    base.when_matched_delete()
    base.when_matched_update({"value": "v"}).execute()
    assert pairs(t)[:2] == [("a", -1), ("b", 0)]
    assert "WHEN MATCHED THEN DELETE" in repr(base.when_matched_delete())
