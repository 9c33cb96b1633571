"""Other readers of the same tables, limited to queries that they define like Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import duckdb
import lance as pylance
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from tests.reliability.conditions import Condition
from tests.reliability.differential import Case, Peer, expected
from tests.reliability.random_tables import arrow, rows_of

Answer = dict[int, tuple[Any, ...]] | set[int] | None
#: DataFusion and polars order NaN and -0.0 differently; the other types compare the same everywhere.
_PLAIN = ("int8", "int16", "int32", "int64", "string", "boolean", "date")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def _plain(condition: Condition, *more: str) -> bool:
    """Return whether all engines agree on a condition: no casts, and only types that compare the same everywhere."""
    return all(not c.cast and c.kind in (*_PLAIN, *more) and "." not in c.column for c in condition.leaves())


def _for_datafusion(condition: Condition) -> bool:
    """Also require lists without null: DataFusion evaluates ``NOT x IN (1, NULL)`` to true for some x (1910066)."""
    return _plain(condition) and not any(c.op == "in" and None in c.values for c in condition.leaves())


def delta_rs(case: Case, uri: str, condition: Condition | None) -> Answer:
    if case.format != "delta" or (condition is not None and not _for_datafusion(condition)):
        return None
    table = deltalake.DeltaTable(uri)
    if dict(case.properties).get("delta.columnMapping.mode"):
        return None  # deltalake 1.6 has no column mapping
    query = "select * from t" if condition is None else f"select id from t where {condition.sql('datafusion')}"
    result = pa.table(deltalake.QueryBuilder().register("t", table).execute(query).read_all())
    return rows_of(result) if condition is None else set(result["id"].to_pylist())


def polars(case: Case, uri: str, condition: Condition | None) -> Answer:
    if case.format != "delta" or case.properties or (condition is not None and not _plain(condition)):
        return None  # polars 2.1 reads through deltalake's datasets, which have neither vectors nor column mapping
    if _HIVE_NULL in _partition_values(case):
        return None  # polars reads this string as null, deltalake and the protocol as a string (1900287)
    frame = pl.read_delta(uri)
    if condition is None:
        return rows_of(frame.to_arrow())
    return set(frame.filter(_expression(condition))["id"].to_list())


def _partition_values(case: Case) -> set[Any]:
    rows = [*case.rows, *(row for o in case.operations for row in o.rows)]
    changed = [o.value for o in case.operations if o.column == case.partition]
    return set() if case.partition is None else {*(row[case.partition] for row in rows), *changed}


def _expression(c: Condition) -> pl.Expr:
    if c.parts:
        parts = [_expression(p) for p in c.parts]
        return ~parts[0] if c.op == "not" else parts[0] & parts[1] if c.op == "and" else parts[0] | parts[1]
    column = pl.col(c.column)
    values = [pl.lit(v) for v in c.values]
    match c.op:
        case "is null":
            return column.is_null()
        case "is not null":
            return column.is_not_null()
        case "in":
            return pl.any_horizontal([column == v for v in values])
        case "between":
            return (column >= values[0]) & (column <= values[1])
        case "<=>":
            return column.eq_missing(values[0])
        case "like":
            text = "".join(".*" if x == "%" else "." if x == "_" else f"\\x{{{ord(x):x}}}" for x in c.values[0])
            return column.str.contains(f"^(?s:{text})$")
    operators = {"=": column.eq, "<>": column.ne, "<": column.lt, "<=": column.le, ">": column.gt, ">=": column.ge}
    return operators[c.op](values[0])


def duck(case: Case, uri: str, condition: Condition | None) -> Answer:
    """Query the data files with DuckDB if they have all columns and no deleted rows."""
    if case.format != "delta" or case.properties or case.partition or "timestamp" in case.kinds.values():
        return None  # timestamps need the icu extension
    files = [str(Path(uri) / unquote(p)) for p in trilake.open(uri).files()["path"].to_pylist()]
    if not files:
        return None
    with duckdb.connect() as db:
        if condition is None:
            return rows_of(pa.table(db.sql(f"select * from read_parquet({files})").to_arrow_table()))
        if any(c.cast for c in condition.leaves()):
            return None  # its casts to string differ
        result = db.sql(f"select id from read_parquet({files}) where {condition.sql('duckdb')}").to_arrow_table()
        return set(result["id"].to_pylist())


def lance_rs(case: Case, uri: str, condition: Condition | None) -> Answer:
    if case.format != "lance" or case.properties or (condition is not None and not _for_datafusion(condition)):
        return None
    # Only trilake writes null masks.
    dataset = pylance.dataset(uri)
    if condition is None:
        return rows_of(dataset.to_table())
    return set(dataset.to_table(columns=["id"], filter=condition.sql("datafusion"))["id"].to_pylist())


PEERS: dict[str, Peer] = {"deltalake": delta_rs, "polars": polars, "duckdb": duck, "pylance": lance_rs}


def spark_answers(spark: Any, case: Case, folder: Path) -> list[set[int]]:
    """Return the ids per filter that Spark SQL keeps of the same rows in plain Parquet: the oracle's oracle."""
    path = str(folder / f"{case.seed}.parquet")
    pq.write_table(arrow(expected(case), case.kinds), path)
    frame = spark.read.parquet(path)
    columns = [f"({f.sql()}) AS f{i}" for i, f in enumerate(case.filters)]
    rows = frame.selectExpr("id", *columns).collect()
    return [{r["id"] for r in rows if r[f"f{i}"] is True} for i in range(len(case.filters))]
