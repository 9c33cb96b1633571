"""CREATE and REPLACE TABLE without rows."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import Any
from uuid import uuid4

import deltalake
import orjson
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import new_uri, with_runtime
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.write.create import (
    CreateMode,
    CreateResult,
    TableDescription,
    check_same_table,
    create_table,
)
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Protocol
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType, from_arrow
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.standard import standard_engine
from trilake.errors import (
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
)
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

LONG, TEXT, DATE = PrimitiveType("long"), PrimitiveType("string"), PrimitiveType("date")
PLAIN = TableDescription(StructType((StructField("id", LONG), StructField("p", TEXT))))


def new_log() -> DeltaLog:
    return DeltaLog(open_store(new_uri()), standard_engine())


class OfOthers:
    """A schema or field of another library, such as deltalake, with Arrow's C interface."""

    def __init__(self, arrow: pa.Schema | pa.Field) -> None:
        self.arrow = arrow

    def __arrow_c_schema__(self) -> Any:
        return self.arrow.__arrow_c_schema__()


IDENTITY = {
    "delta.identity.start": "5",
    "delta.identity.step": "2",
    "delta.identity.highWaterMark": "0",
    "delta.identity.allowExplicitInsert": "false",
}


@pytest.mark.parametrize("given", ["schema", "fields", "schema of others", "fields of others"])
def test_arrow_field_metadata_defines_column_rules(given: str) -> None:
    fields = [
        pa.field("id", pa.int64(), False, IDENTITY),
        pa.field("n", pa.int64(), metadata={"comment": "a number"}),
        pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "n * 2"}),
        pa.field("kind", pa.string(), metadata={"CURRENT_DEFAULT": "'none'"}),
    ]
    columns: dict[str, Any] = {
        "schema": pa.schema(fields),
        "fields": iter(fields),
        "schema of others": OfOthers(pa.schema(fields)),
        "fields of others": [OfOthers(f) for f in fields],
    }
    uri = new_uri()
    trilake.create(uri, columns[given])
    trilake.write(pa.table({"n": [1, 2]}), uri, mode="append")
    assert trilake.open(uri).to_arrow().sort_by("id").to_pylist() == [
        {"id": 5, "n": 1, "twice": 2, "kind": "none"},
        {"id": 7, "n": 2, "twice": 4, "kind": "none"},
    ]
    with pytest.raises(InvalidArgumentError, match="identity column"):
        trilake.create(f"{uri}-x", pa.schema([pa.field("id", pa.int64(), metadata={"delta.identity.step": "x"})]))


def test_schemas_of_deltalake_keep_types_that_arrow_lacks() -> None:
    variant, number = deltalake.schema.VariantType(), deltalake.schema.PrimitiveType("decimal(5,2)")
    nested = deltalake.schema.StructType([deltalake.Field("v", variant), deltalake.Field("n", number)])
    fields = [
        deltalake.Field("id", "long", nullable=False),
        deltalake.Field("v", variant, metadata={"comment": "any"}),
        deltalake.Field("s", nested),
        deltalake.Field("l", deltalake.schema.ArrayType(variant, True)),
    ]
    uri = new_uri()
    schema = deltalake.Schema(fields)
    trilake.create(uri, schema)
    assert trilake.open(uri).metadata.schema_string == schema.to_json()
    trilake.create(uri, fields, mode="create_or_replace")
    trilake.alter(uri).add_columns([deltalake.Field("more", variant)])
    created = trilake.open(uri)
    assert [f.name for f in created.metadata.schema.fields if str(f.type) == "variant"] == ["v", "more"]
    assert "variantType" in (created.protocol.reader_features or ())


def test_arguments_override_field_metadata() -> None:
    uri = new_uri()
    noted = pa.schema([("n", pa.int64()), pa.field("m", pa.int64(), metadata={"delta.generationExpression": "n * 2"})])
    trilake.create(uri, noted, generated={"M": "n * 3"})
    trilake.write(pa.table({"n": [1]}), uri, mode="append")
    assert trilake.open(uri).to_arrow().to_pylist() == [{"n": 1, "m": 3}]
    for wrong in (OfOthers(pa.field("n", pa.int64())), pa.table({"n": [1]})):
        with pytest.raises(InvalidArgumentError, match="columns must be a schema"):
            trilake.create(f"{uri}-x", wrong)


@pytest.mark.parametrize(
    ("column", "sql", "help"),
    [
        ("string", "n + 1", r"write CAST\(n \+ 1 AS STRING\)"),
        ("bigint", "n", r"write CAST\(n AS BIGINT\)"),
        ("decimal(4,1)", "n", r"AS DECIMAL\(4,1\)"),
    ],
)
def test_generation_expression_has_the_type_of_its_column(column: str, sql: str, help: str) -> None:
    """Tables with another type were created; delta-spark refuses to change their metadata."""
    uri = MemoryStore().uri
    with pytest.raises(ExpressionError, match="generated column g is of type") as raised:
        trilake.create(uri, {"n": "int", "g": column}, generated={"g": sql})
    assert raised.value.condition == "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"
    assert re.search(help, raised.value.help or "")
    trilake.create(uri, {"n": "int", "g": column}, generated={"g": f"CAST({sql} AS {column})"})


def test_sums_of_decimals_are_not_compared_by_precision() -> None:
    trilake.create(
        MemoryStore().uri, {"d": "decimal(10,2)", "g": "decimal(11,2)"}, generated={"g": "d + CAST(1 AS DECIMAL(1,0))"}
    )


def test_create_table_with_all_features() -> None:
    log = new_log()
    schema = StructType(
        (
            StructField("id", LONG, False, identity_metadata(10, 5)),
            StructField("at", DATE, True, {"comment": "when"}),
            StructField("year", PrimitiveType("integer"), True, {"delta.generationExpression": "year(at)"}),
            StructField("kind", TEXT, True, {"CURRENT_DEFAULT": "'none'"}),
            StructField("s", StructType((StructField("x", LONG),))),
        )
    )
    table = TableDescription(
        schema,
        properties={"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true", "team": "x"},
        comment="everything",
        cluster_by=("at", "s.X"),
        name="all",
    )
    assert create_table(log, table).version == 0
    head = log.head()
    assert (head.metadata.name, head.metadata.description) == ("all", "everything")
    assert set(head.protocol.writer_features or ()) == {
        *("appendOnly", "invariants", "identityColumns", "generatedColumns", "allowColumnDefaults", "columnMapping"),
        *("changeDataFeed", "clustering", "domainMetadata"),
    }
    physical = orjson.loads(head.state.domains["delta.clustering"]["configuration"])["clusteringColumns"]
    s = head.schema.field("s")
    assert isinstance(s.type, StructType)
    assert physical == [[head.schema.field("at").physical_name], [s.physical_name, s.type.field("x").physical_name]]
    info = log.commit_info(0)
    assert info["operation"] == "CREATE TABLE"
    assert info["operationParameters"] == {
        "isManaged": "false",
        "description": "everything",
        "partitionBy": "[]",
        "clusterBy": '["at","s.x"]',
        "properties": orjson.dumps(dict(table.properties)).decode(),
    }
    trilake.write(pa.table({"at": [dt.date(2024, 5, 1)]}), log.store.uri, mode="append")
    assert trilake.open(log.store.uri).to_arrow().to_pylist() == [
        {"id": 10, "at": dt.date(2024, 5, 1), "year": 2024, "kind": "none", "s": None}
    ]


def test_create_modes() -> None:
    log = new_log()
    with pytest.raises(TableNotFoundError, match="no table to replace"):
        create_table(log, PLAIN, mode="replace")
    assert create_table(log, PLAIN, mode="create_or_replace") == CreateResult(0, created=True)
    assert log.commit_info(0)["operation"] == "CREATE OR REPLACE TABLE"
    with pytest.raises(TableExistsError, match="create_if_not_exists"):
        create_table(log, PLAIN)
    assert create_table(log, PLAIN, mode="create_if_not_exists") == CreateResult(0, created=False)
    trilake.write(pa.table({"id": [1], "p": ["x"]}), log.store.uri, mode="append")
    first = log.head().metadata.id
    other = TableDescription(StructType((StructField("q", DATE),)), properties={"delta.enableChangeDataFeed": "true"})
    assert create_table(log, other, mode="replace") == CreateResult(2, created=True)
    table = trilake.open(log.store.uri)
    assert table.schema.names == ["q"]
    assert table.count() == 0
    assert trilake.open(log.store.uri, version=1).count() == 1
    assert log.head().metadata.id == first
    assert log.head().protocol == Protocol(1, 7, None, ("appendOnly", "changeDataFeed", "invariants"))
    create_table(log, PLAIN, mode="create_or_replace")
    assert log.head().protocol == Protocol(1, 7, None, ("appendOnly", "changeDataFeed", "invariants"))
    wrong: Any = "make"
    with pytest.raises(InvalidArgumentError, match="unknown"):
        create_table(log, PLAIN, mode=wrong)


def test_replace_continues_column_ids() -> None:
    log = new_log()
    mapped = replace(PLAIN, properties={"delta.columnMapping.mode": "id"})
    create_table(log, mapped)
    old = log.head().schema
    schema = from_arrow(pa.schema([("p", pa.string()), ("id", pa.string())]))
    create_table(log, replace(mapped, schema=schema), mode="replace")
    new = log.head()
    assert new.schema.field("p") == old.field("p")
    assert new.schema.field("id").column_id == 3
    assert new.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"
    create_table(log, PLAIN, mode="replace")
    assert log.head().schema == PLAIN.schema
    assert log.head().protocol == new.protocol


def test_append_only_table_with_rows_is_not_replaced() -> None:
    log = new_log()
    create_table(log, replace(PLAIN, properties={"delta.appendOnly": "true"}))
    create_table(log, replace(PLAIN, properties={"delta.appendOnly": "true"}), mode="replace")
    trilake.write(pa.table({"id": [1], "p": ["x"]}), log.store.uri, mode="append")
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        create_table(log, PLAIN, mode="replace")


def column(kind: PrimitiveType = LONG, **metadata: Any) -> StructType:
    named = {k.replace("__", "."): v for k, v in metadata.items()}
    return StructType((StructField("a", LONG), StructField("b", kind, True, named)))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (TableDescription(StructType((StructField("a", LONG), StructField("A", LONG)))), "two columns"),
        (TableDescription(StructType((StructField("a b", LONG), StructField("c", LONG)))), "delta.columnMapping.mode"),
        (replace(PLAIN, partition_by=("q",)), "'q' is not in the schema"),
        (replace(PLAIN, partition_by=("p",), cluster_by=("id",)), "not both"),
        (replace(PLAIN, cluster_by=("x",)), "no column x"),
        (replace(PLAIN, cluster_by=("id", "ID")), "twice"),
        (TableDescription(column(PrimitiveType("binary")), cluster_by=("b",)), "cannot be clustered"),
        (replace(PLAIN, properties={"delta.typo": "1"}), "delta.typo"),
        (replace(PLAIN, properties={"delta.dataSkippingStatsColumns": "x"}), "no column x"),
        (TableDescription(column(delta__generationExpression="c + 1")), "generated column b"),
        (TableDescription(column(delta__generationExpression="a", CURRENT_DEFAULT="1")), "can be only one of"),
        (TableDescription(column(CURRENT_DEFAULT="a")), "column 'a' not found"),
        (TableDescription(column(**identity_metadata()), partition_by=("b",)), "partitioned by its identity"),
    ],
)
def test_invalid_table_descriptions_are_rejected(table: TableDescription, says: str) -> None:
    log = new_log()
    with pytest.raises(TrilakeError) as caught:
        create_table(log, table)
    assert says in str(caught.value)
    assert not log.exists()


@pytest.mark.parametrize("mode", ["create", "create_if_not_exists", "create_or_replace"])
def test_lost_creation_race(mode: CreateMode) -> None:
    log = new_log()
    once = [1]

    def new_id() -> str:
        if once:
            once.clear()
            create_table(log, PLAIN)
        return str(uuid4())

    racing = with_runtime(log, replace(SYSTEM_RUNTIME, new_id=new_id))
    if mode == "create":
        with pytest.raises(TableExistsError):
            create_table(racing, PLAIN, mode=mode)
        return
    expected = CreateResult(0, created=False) if mode == "create_if_not_exists" else CreateResult(1, created=True)
    assert create_table(racing, PLAIN, mode=mode) == expected


def test_rule_error_names_the_column() -> None:
    with pytest.raises(ExpressionError, match="a"):
        create_table(new_log(), TableDescription(column(CURRENT_DEFAULT="'text'")))


def test_table_can_be_created_without_columns() -> None:
    log, empty = new_log(), TableDescription(StructType(()))
    create_table(log, empty)
    table, rows = trilake.open(log.store.uri), pa.table({"a": [1, 2]})
    assert (table.count(), table.to_arrow().num_columns) == (0, 0)
    for rejected in (
        lambda: trilake.write(rows, log.store.uri, mode="append"),  # a new column
        lambda: trilake.write(rows.select([]), log.store.uri, mode="append"),  # two rows without columns
        lambda: table.merge(rows.select([]), "1 = 0").when_not_matched_insert_all().execute(),
        lambda: create_table(log, empty, mode="replace"),
        lambda: create_table(new_log(), empty, mode="create_or_replace"),
    ):
        with pytest.raises(SchemaMismatchError, match=r"column"):
            rejected()
    trilake.write(rows, log.store.uri, mode="append", schema_mode="merge")
    assert trilake.open(log.store.uri).to_arrow() == rows


def test_properties_that_the_library_sets_are_not_compared() -> None:
    """A dropped external table with column mapping could not be created again by the same statement."""
    log, mapped = new_log(), replace(PLAIN, properties={"delta.columnMapping.mode": "name"})
    create_table(log, mapped)
    assert "delta.columnMapping.maxColumnId" in log.head().metadata.configuration
    check_same_table(log, mapped)
    with pytest.raises(SchemaMismatchError) as e:
        check_same_table(log, replace(PLAIN, properties={"delta.columnMapping.mode": "id"}))
    assert e.value.condition == "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY"
