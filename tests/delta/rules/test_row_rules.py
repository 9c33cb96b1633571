"""``RowRules``: all rules together, their order, and the expressions for Spark."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import ArrayType, MapType, PrimitiveType, StructField, StructType, from_arrow
from trilake.delta.rules.constraints import RowSession
from trilake.delta.rules.identity import identity_metadata, updated_schema
from trilake.delta.rules.row_rules import RESERVED, RowRules, depending_on_zone, sql_type
from trilake.delta.rules.store_assignment import assign_batch
from trilake.errors import ConstraintViolatedError, ExpressionError, SchemaMismatchError, UnsupportedExpressionError
from trilake.expr.terms.engine import query


def column(name: str, kind: str, nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, PrimitiveType(kind), nullable, {k.replace("__", "."): v for k, v in metadata.items()})


def metadata(*fields: StructField, **checks: str) -> Metadata:
    return Metadata("t", StructType(fields).json(), (), {f"delta.constraints.{k}": v for k, v in checks.items()})


def rules(table: Metadata, rows: pa.RecordBatch | pa.Schema, **options: Any) -> RowRules:
    source = from_arrow(rows if isinstance(rows, pa.Schema) else rows.schema)
    return RowRules.of(table, source, uri="memory", query=query, now_ms=1, **options)


EVENTS = metadata(
    StructField("id", PrimitiveType("long"), True, identity_metadata(10, 2)),
    column("name", "string", False, CURRENT_DEFAULT="'?'"),
    StructField("code", PrimitiveType("string"), True, {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}),
    column("n", "integer", CURRENT_DEFAULT="7"),
    column("twice", "long", delta__generationExpression="n * 2L"),
    column("key", "string", delta__generationExpression="concat(code, '/', name)"),
    small="twice < 100",
    odd="id % 2 = 0",
)
VALUES = st.none() | st.integers(-60, 60)


@given(
    st.lists(
        st.lists(st.tuples(VALUES, st.text("ab ", max_size=5), st.none() | st.text("xy", max_size=1)), max_size=3)
    ),
    st.sets(st.sampled_from(["n", "name", "code", "twice", "key"])),
    st.integers(-1, 1),
)
def test_all_rules_match_a_model(batches: Any, columns: set[str], wrong: int) -> None:
    """Any subset of the columns is given; generated values may be ``wrong``."""
    kinds = {"n": pa.int32(), "name": pa.string(), "code": pa.string(), "twice": pa.int64(), "key": pa.string()}
    schema = pa.schema([(c.upper(), kinds[c]) for c in sorted(columns)])
    if not columns:
        return
    expected: list[dict[str, Any]] = []
    incoming, error = [], False
    for batch in batches:
        out: dict[str, list[Any]] = {c: [] for c in columns}
        for n, code, name in batch:
            row: dict[str, Any] = {"id": 10 + 2 * len(expected), "n": n if "n" in columns else 7}
            row["name"] = name if "name" in columns else "?"
            row["code"] = code[:4].ljust(4) if "code" in columns else None
            row["twice"] = None if row["n"] is None else row["n"] * 2
            row["key"] = None if row["code"] is None or row["name"] is None else f"{row['code']}/{row['name']}"
            given = {**row, "code": code}
            if "twice" in columns and row["twice"] is not None:
                given["twice"] += wrong
                error |= wrong != 0
            for c in columns:
                out[c].append(given[c])
            too_long = "code" in columns and bool(code[4:].strip(" "))
            error |= too_long or row["name"] is None or row["twice"] is None or row["twice"] >= 100
            expected.append(row)
        incoming.append(pa.record_batch([pa.array(out[c], kinds[c]) for c in sorted(columns)], schema=schema))
    pipeline = pickle.loads(pickle.dumps(rules(EVENTS, schema))).start(tasks=1)
    if error:
        with pytest.raises(ConstraintViolatedError):
            list(pipeline.run(incoming))
        return
    result = list(pipeline.run(incoming))
    assert [row for batch in result for row in batch.to_pylist()] == [
        {c: row[c] for c in ("id", "name", "code", "n", "twice", "key")} for row in expected
    ]
    assert all(batch.schema == EVENTS.schema.to_arrow_schema() for batch in result)
    assert pipeline.marks == ({"id": expected[-1]["id"]} if expected else {})


def test_table_without_rules_only_assigns() -> None:
    table = metadata(column("a", "long"), column("b", "string"))
    rows = pa.record_batch({"B": ["x"], "a": pa.array([1], pa.int8())})
    plain = rules(table, rows)
    assert plain.plain
    pipeline = plain.start(3)
    assert pipeline.apply(rows) == assign_batch(rows, table.schema)
    assert list(pipeline.run([rows, rows])) == [pipeline.apply(rows)] * 2
    assert pipeline.marks == {}
    assert plain.spark_stages() == []


def test_small_batches_are_combined_in_order() -> None:
    table = metadata(column("a", "long"), column("g", "long", delta__generationExpression="a + 1"))
    batches = [pa.record_batch({"a": [i]}) for i in range(5)] + [pa.record_batch({"a": pa.array([9], pa.int8())})]
    result = list(rules(table, batches[0]).start().run(iter(batches)))
    assert [b.num_rows for b in result] == [5, 1]
    assert [r["g"] for b in result for r in b.to_pylist()] == [1, 2, 3, 4, 5, 10]


def test_given_nulls_are_not_replaced_by_defaults() -> None:
    table = metadata(column("a", "long", CURRENT_DEFAULT="5"), column("b", "long"))
    rows = pa.record_batch({"a": pa.array([None, 1], pa.int64())})
    assert rules(table, rows).start().apply(rows).to_pylist() == [{"a": None, "b": None}, {"a": 1, "b": None}]


def test_defaults_use_the_time_of_the_plan() -> None:
    table = metadata(column("a", "long"), column("t", "timestamp", CURRENT_DEFAULT="current_timestamp()"))
    rows = pa.record_batch({"a": [1]})
    assert rules(table, rows).start().apply(rows)["t"].cast(pa.int64()).to_pylist() == [1000]


# --- identity --------------------------------------------------------------------------------------------------------


def identity(explicit: bool, mark: int | None = None) -> Metadata:
    fields = {
        **identity_metadata(explicit=explicit),
        **({} if mark is None else {"delta.identity.highWaterMark": mark}),
    }
    return metadata(StructField("id", PrimitiveType("long"), True, fields), column("a", "long"))


def test_explicit_identity_values_are_rejected() -> None:
    with pytest.raises(SchemaMismatchError, match="'id' is an identity column"):
        rules(identity(False), pa.schema([("ID", pa.int64())]))


def test_explicit_identity_values_are_allowed_if_enabled() -> None:
    rows = pa.record_batch({"id": [7, None, 3], "a": [1, 2, 3]})
    table = identity(True, mark=5)
    pipeline = rules(table, rows).start()
    assert pipeline.apply(rows)["id"].to_pylist() == [7, None, 3]
    assert pipeline.marks == {"id": 7}
    assert rules(table, rows).generated_identities == ()
    moved = updated_schema(table.schema, [pipeline.marks, {}])
    assert moved.fields[0].metadata["delta.identity.highWaterMark"] == 7
    absent = rules(table, pa.schema([("a", pa.int64())]))
    assert absent.generated_identities == ("id",)
    assert absent.start().apply(pa.record_batch({"a": [1]}))["id"].to_pylist() == [6]


def test_rewritten_rows_keep_their_identity_values() -> None:
    rows = pa.record_batch({"id": pa.array([2, None, 900, None]), "a": [1, 2, 3, 4]})
    pipeline = rules(identity(False, mark=1000), rows, rewrite=True).start()
    assert pipeline.apply(rows)["id"].to_pylist() == [2, 1001, 900, 1002]
    assert pipeline.marks == {"id": 1002}


def test_identity_values_of_tasks_are_distinct() -> None:
    planned = rules(identity(False), pa.schema([("a", pa.int64())]))
    rows = pa.record_batch({"a": [0] * 1000})
    values = [v for t in range(5) for v in planned.start(t).apply(rows)["id"].to_pylist()]
    assert len(set(values)) == 5000


# --- Spark -----------------------------------------------------------------------------------------------------------

HASHED = metadata(
    column("a", "long"),
    column("d", "long", CURRENT_DEFAULT="3"),
    column("u", "string", CURRENT_DEFAULT="current_user()"),
    column("h", "integer", delta__generationExpression="hash(a)"),
    column("e", "long", delta__generationExpression="a + 1"),
    q="xxhash64(a, h) <> 5 -- never",
    r="a > 0",
)


def test_spark_only_rules_are_rejected_by_name() -> None:
    with pytest.raises(UnsupportedExpressionError, match="only Spark can write to this table") as raised:
        rules(HASHED, pa.schema([("a", pa.int64())]))
    for part in ("the default of column u", "generated column h (hash(a))", "CHECK constraint q"):
        assert part in raised.value.message
    assert "constraint r" not in raised.value.message


def test_spark_stages_compute_columns_then_checks() -> None:
    planned = rules(HASHED, pa.schema([("A", pa.int32())]), session=RowSession())
    message = "a value of column A does not fit long"
    assert planned.spark_columns() == [
        f"IF(CAST(CAST(`A` AS BIGINT) AS INT) <=> `A`, CAST(`A` AS BIGINT), raise_error('{message}')) AS `a`",
        "CAST((3) AS BIGINT) AS `d`",
        "CAST((current_user()) AS STRING) AS `u`",
    ]
    assert planned.spark_stages() == [
        {"h": "CAST((hash(a)) AS INT)", "e": "CAST((a + 1) AS BIGINT)"},
        {f"{RESERVED}check_0": "coalesce((xxhash64(a, h) <> 5 -- never\n), false)"},
    ]
    assert [e.name for e in planned.needs_spark] == ["u", "h", f"{RESERVED}check_0"]


def computed(**columns: Any) -> pa.RecordBatch:
    kinds = {"h": pa.int32(), "u": pa.string(), f"{RESERVED}generated_0": pa.int32(), f"{RESERVED}check_0": pa.bool_()}
    return pa.record_batch({k: pa.array(v, kinds.get(k, pa.int64())) for k, v in columns.items()})


def test_spark_results_are_applied() -> None:
    pipeline = rules(HASHED, pa.schema([("a", pa.int64())]), session=RowSession()).start()
    check = f"{RESERVED}check_0"
    rows = computed(**{"a": [1, 2], "d": [3, 3], "u": ["me", "me"], "h": [11, 12], "e": [2, 3], check: [True, True]})
    assert pipeline.apply(rows).to_pylist() == [
        {"a": 1, "d": 3, "u": "me", "h": 11, "e": 2},
        {"a": 2, "d": 3, "u": "me", "h": 12, "e": 3},
    ]
    rows = computed(**{"a": [1, 2], "d": [3, 3], "u": ["me", "me"], "h": [11, 12], "e": [2, 3], check: [True, False]})
    with pytest.raises(ConstraintViolatedError, match=r"constraint q .* a = 2, d = 3"):
        pipeline.apply(rows)
    with pytest.raises(SchemaMismatchError, match="lacks the columns h, u"):
        pipeline.apply(pa.record_batch({"a": [1]}))


def test_spark_results_verify_given_columns() -> None:
    schema = pa.schema([("a", pa.int64()), ("h", pa.int32()), ("u", pa.string())])
    planned = rules(HASHED, schema, session=RowSession())
    assert planned.spark_stages()[-1][f"{RESERVED}generated_0"] == "CAST((hash(a)) AS INT)"
    given = {"a": [1], "u": ["me"], "h": [11], f"{RESERVED}check_0": [True]}
    good = computed(**given, **{f"{RESERVED}generated_0": [11]})
    assert planned.start().apply(good)["e"].to_pylist() == [2]
    with pytest.raises(ConstraintViolatedError, match=r"generated column h must equal hash\(a\).* the expression = 12"):
        planned.start().apply(computed(**given, **{f"{RESERVED}generated_0": [12]}))


# --- plans that fail -------------------------------------------------------------------------------------------------


def test_invalid_schema_is_rejected_before_reading_rows() -> None:
    with pytest.raises(SchemaMismatchError, match="column zz is not in the table"):
        rules(EVENTS, pa.schema([("zz", pa.int64())]))
    with pytest.raises(ExpressionError, match="column 'gone' not found"):
        rules(metadata(column("a", "long"), c="gone > 1"), pa.schema([("a", pa.int64())]))


def test_empty_batch_stays_empty() -> None:
    rows = pa.record_batch({"n": pa.array([], pa.int32())})
    assert rules(EVENTS, rows).start().apply(rows).schema == EVENTS.schema.to_arrow_schema()


def test_types_in_spark_sql() -> None:
    nested = StructType((StructField("a`b", PrimitiveType("decimal(10,2)")),))
    assert sql_type(MapType(PrimitiveType("byte"), ArrayType(nested))) == (
        "MAP<TINYINT, ARRAY<STRUCT<`a``b`: DECIMAL(10,2)>>>"
    )


def test_rules_depending_on_the_session_time_zone() -> None:
    table = metadata(
        column("t", "timestamp"),
        column("day", "date", delta__generationExpression="CAST(t AS DATE)"),
        column("since", "timestamp", CURRENT_DEFAULT="TIMESTAMP'2024-01-01 00:00:00'"),
        column("text", "string"),
        column("twice", "long", delta__generationExpression="n * 2L"),
        column("n", "integer", CURRENT_DEFAULT="7"),
        early="hour(t) < 12",
        small="n < 100",
    )

    def dependents(**given: pa.DataType) -> tuple[str, ...]:
        return depending_on_zone(table, from_arrow(pa.schema(given)), dt.datetime(2024, 1, 1, tzinfo=dt.UTC))

    times = pa.timestamp("us", "UTC")
    always = ("CHECK constraint early", "generated column day")
    assert dependents(t=times, n=pa.int32()) == (*always, "the default of column since")
    assert dependents(t=times, since=times, text=pa.string()) == always
    assert dependents(t=times, since=times, text=times) == (*always, "column text of type timestamp as string")
    assert depending_on_zone(EVENTS, from_arrow(pa.schema({"n": pa.int32()})), dt.datetime.now(dt.UTC)) == ()


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_empty_partition_value_is_checked_as_null(kind: str) -> None:
    """For NOT NULL and CHECK; nullable columns and columns that are not partition columns keep the empty string."""
    p, n = pa.array(["", "x"]).cast(pa.string() if kind == "string" else pa.binary()), pa.array([1, 2])
    rows = pa.record_batch([p, n], ["p", "n"])
    for required, partitioned, check in ((True, True, {}), (False, True, {"c": "p IS NOT NULL"}), (True, False, {})):
        of = replace(
            metadata(column("p", kind, not required), column("n", "long"), **check),
            partition_columns=("p",) if partitioned else (),
        )
        pipeline = rules(of, rows).start()
        if partitioned:
            with pytest.raises(ConstraintViolatedError, match="null"):
                pipeline.apply(rows)
        else:
            assert pipeline.apply(rows).column("p").to_pylist()[0] in ("", b"")
        assert pipeline.apply(rows.slice(1)).num_rows == 1
    free = replace(metadata(column("p", kind), column("n", "long")), partition_columns=("p",))
    assert rules(free, rows).plain, "which costs nothing"
    read = replace(
        metadata(
            column("p", "string"),
            column("n", "long"),
            column("k", "integer", delta__generationExpression="length(p)"),
            c="n > 0",
        ),
        partition_columns=("p",),
    )
    got = rules(read, rows).start().apply(rows) if kind == "string" else None
    assert got is None or got.to_pylist()[0] == {"p": None, "n": 1, "k": 0}, "generated columns see what was given"
