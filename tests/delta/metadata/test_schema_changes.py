"""ALTER TABLE: columns, properties, constraints and defaults, each as one commit, on tables with rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pytest

import trilake
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import commit
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.metadata import schema_changes as alter
from trilake.delta.metadata.dependents import dependents
from trilake.delta.metadata.type_changes import change_type
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import mapped
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType, from_arrow
from trilake.engine import standard_engine
from trilake.errors import (
    ConstraintViolatedError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TrilakeError,
    UnknownOptionError,
    UnsupportedExpressionError,
)
from trilake.runtime import SYSTEM_RUNTIME, Runtime
from trilake.storage import open_store

ROWS = [
    {"id": 1, "s": {"x": 1, "y": "a"}, "l": [{"e": 1}, None], "m": [("k", 1)], "p": "u"},
    {"id": 2, "s": None, "l": None, "m": None, "p": "v"},
]
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("l", pa.list_(pa.struct([("e", pa.int8())]))),
        ("m", pa.map_(pa.string(), pa.int16())),
        ("p", pa.string()),
    ]
)
MAPPED = {"delta.columnMapping.mode": "name"}


class Case:
    """A table in memory and what changes it."""

    def __init__(self, *, properties: Mapping[str, str] | None = None, partition_by: str | None = "p") -> None:
        self.uri = f"memory://alter-{uuid4()}"
        self.log = DeltaLog(open_store(self.uri), standard_engine())
        data = pa.Table.from_pylist(ROWS, schema=SCHEMA)
        trilake.write(data, self.uri, partition_by=partition_by, properties=properties)
        self.alter = Alter(self.log)

    @property
    def head(self) -> Head:
        return self.log.head()

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        return sorted(
            trilake.open(self.uri).to_arrow(columns=list(columns) or None).to_pylist(),
            key=lambda r: str(r.get("id", r.get("number"))),
        )

    def append(self, *rows: dict[str, Any]) -> None:
        trilake.write(pa.Table.from_pylist(list(rows)), self.uri, mode="append")

    def last(self) -> tuple[str, dict[str, Any]]:
        """Operation of the newest commit, and its parameters with their JSON read."""
        info = self.log.commit_info(self.head.version)
        parameters = {}
        for k, v in info["operationParameters"].items():
            try:
                parameters[k] = orjson.loads(v)
            except orjson.JSONDecodeError:
                parameters[k] = v
        return info["operation"], parameters


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [None, MAPPED], ids=["plain", "mapped"])
def test_added_columns_read_as_null_and_take_values(properties: Mapping[str, str] | None) -> None:
    t = Case(properties=properties)
    assert t.alter.add_columns({"n": "bigint", "S.Z": pa.float64(), "l.element.f": "varchar(3)"}) == 1
    assert t.alter.add_columns([pa.field("first", pa.int8()), pa.field("second", pa.int8())], first=True) == 2
    assert t.alter.add_columns({"s.between": "date"}, after="X") == 3
    assert t.head.schema.names == ["first", "second", "id", "s", "l", "m", "p", "n"]
    assert str(t.head.schema.field("s").type) == "struct<x:integer,between:date,y:string,Z:double>"
    assert t.last() == (
        "ADD COLUMNS",
        {
            "columns": [
                {
                    "column": {"name": "s.between", "type": "date", "nullable": True, "metadata": {}},
                    "position": "AFTER X",
                }
            ]
        },
    )
    assert t.rows("id", "n", "s")[0] == {
        "id": 1,
        "n": None,
        "s": {"x": 1, "between": None, "y": "a", "Z": None},
    }
    t.append({"id": 3, "n": 9, "s": {"x": 3, "Z": 0.5}, "l": [{"e": 3, "f": "abc"}], "p": "u"})
    assert t.rows("id", "n", "s", "l")[2] == {
        "id": 3,
        "n": 9,
        "s": {"x": 3, "between": None, "y": None, "Z": 0.5},
        "l": [{"e": 3, "f": "abc"}],
    }
    with pytest.raises(ConstraintViolatedError):
        t.append({"id": 4, "l": [{"e": 3, "f": "abcd"}], "p": "u"})


@pytest.mark.parametrize(
    ("columns", "more", "says"),
    [
        ({"ID": "int"}, {}, "there is a column id already"),
        ({"s.Y": "int"}, {}, "there is a column s.y already"),
        ({"nothing.a": "int"}, {}, "no column nothing"),
        ({"l.a": "int"}, {}, "go on with element"),
        ({"id.a": "int"}, {}, "integer, which has no fields"),
        ({"a": "int"}, {"after": "b"}, "no column b to stand after"),
        ({"a": "int"}, {"after": "id", "first": True}, "not both"),
        ({"a": "integr"}, {}, "integr"),
        ({"a b": "int"}, {}, "delta.columnMapping.mode"),
        ([pa.field("a", pa.int8(), nullable=False)], {}, "must not be null"),
        ({"a": "void"}, {}, "has no type"),
        ([StructField("a", PrimitiveType("long"), True, {"CURRENT_DEFAULT": "1"})], {}, "has a default"),
        ([StructField("a", PrimitiveType("long"), True, {"delta.generationExpression": "id"})], {}, "is computed"),
        ({}, {}, "no columns"),
        ("a int", {}, "list of fields"),
        (["a"], {}, "no field"),
    ],
)
def test_columns_that_cannot_be_added(columns: Any, more: dict[str, Any], says: str) -> None:
    t = Case()
    with pytest.raises(TrilakeError) as caught:
        t.alter.add_columns(columns, **more)
    assert says in str(caught.value)
    assert t.head.version == 0


def test_renamed_columns_keep_their_rows() -> None:
    t = Case(properties={**MAPPED, "delta.dataSkippingStatsColumns": "id,s.x"})
    t.alter.rename_column("ID", "number")
    assert t.last() == ("RENAME COLUMN", {"oldColumnPath": "id", "newColumnPath": "number"})
    t.alter.rename_column("s.x", "odd name")
    t.alter.rename_column("l.element.e", "E")
    t.alter.rename_column("p", "q.r")
    assert t.head.metadata.partition_columns == ("q.r",)
    assert t.head.metadata.configuration["delta.dataSkippingStatsColumns"] == "number,s.`odd name`"
    assert t.rows("number", "s", "l", "q.r")[0] == {
        "number": 1,
        "s": {"odd name": 1, "y": "a"},
        "l": [{"E": 1}, None],
        "q.r": "u",
    }
    t.alter.rename_column(["q.r"], "p")
    t.append({"number": 3, "s": {"odd name": 3, "y": "c"}, "p": "u"})
    assert trilake.open(t.uri).to_arrow(filter="p = 'u' and number > 1").num_rows == 1


def test_swapped_names_do_not_swap_values() -> None:
    t = Case(properties=MAPPED)
    t.alter.add_columns({"other": "int"})
    t.append({"id": 3, "other": 30, "p": "u"})
    for old, new in (("id", "x"), ("other", "id"), ("x", "other")):
        t.alter.rename_column(old, new)
    assert sorted((r["id"] or 0, r["other"]) for r in t.rows()) == [(0, 1), (0, 2), (30, 3)]


def test_dropped_columns_come_back_empty() -> None:
    t = Case(properties=MAPPED)
    version = t.alter.drop_columns("id", "s.y")
    assert t.last() == ("DROP COLUMNS", {"columns": ["id", "s.y"]})
    assert t.head.schema.names == ["s", "l", "m", "p"]
    assert [r["s"] for r in t.rows() if r["s"]] == [{"x": 1}]
    t.alter.add_columns({"id": "int", "s.y": "string"})
    assert {r["id"] for r in t.rows()} == {None}
    assert {r["s"]["y"] for r in t.rows() if r["s"]} == {None}
    assert trilake.open(t.uri, version=version - 1).to_arrow(filter="id > 0").num_rows == 2


@pytest.mark.parametrize(("what", "path"), [("rename", "id"), ("drop", "s.x")])
def test_without_mapping_names_stay(what: str, path: str) -> None:
    t = Case()
    with pytest.raises(InvalidArgumentError, match=rf"cannot {what} a column.*delta.columnMapping.mode to 'name'"):
        t.alter.rename_column(path, "n") if what == "rename" else t.alter.drop_columns(path)
    t.alter.set_properties(MAPPED)
    t.alter.rename_column(path, "n")
    assert t.head.version == 2


def test_columns_that_cannot_be_dropped() -> None:
    t = Case(properties=MAPPED)
    t.alter.add_constraint("c", "id > 0 and s.x < 9 or S.Y = 'id' or s is null")
    for path, says in [
        (("p",), "partitioned by it"),
        (("id",), "CHECK constraint c"),
        (("s",), "CHECK constraint c"),
        (("s.y",), "CHECK constraint c"),
        (("l.element.e",), "last column of its kind"),
        (("l.element",), "not a column of its own"),
        (("x",), "the columns are id, s, l, m, p"),
        ((), "no columns"),
    ]:
        with pytest.raises(TrilakeError) as caught:
            t.alter.drop_columns(*path)
        assert says in str(caught.value)
    t.alter.drop_columns("m", "l")
    t.alter.drop_constraint("C")
    with pytest.raises(InvalidArgumentError, match="only partition columns would be left"):
        t.alter.drop_columns("id", "s")
    with pytest.raises(InvalidArgumentError, match="there is a column id already"):
        t.alter.rename_column("s", "ID")
    t.alter.rename_column("id", "ID")
    assert t.head.schema.names == ["ID", "s", "p"]


def test_moved_columns() -> None:
    t = Case()
    t.alter.move_column("p", first=True)
    t.alter.move_column("s.x", after="y")
    assert t.last()[1]["position"] == "AFTER y"
    assert t.head.schema.names == ["p", "id", "s", "l", "m"]
    assert list(t.rows()[0]["s"].items()) == [("y", "a"), ("x", 1)]
    for arguments in ({}, {"after": "p", "first": True}):
        with pytest.raises(InvalidArgumentError):
            t.alter.move_column("p", **arguments)


@pytest.mark.parametrize("column", ["id", "l", "p"])
def test_a_column_after_itself_stays_where_it_is(column: str) -> None:
    t = Case()
    before, rows = t.head.schema, t.rows()
    t.alter.move_column(column, after=column.upper())
    assert t.head.schema == before
    assert t.rows() == rows


def test_types_widen_at_every_depth() -> None:
    t = Case()
    with pytest.raises(InvalidArgumentError, match=r"delta\.enableTypeWidening"):
        t.alter.change_type("id", "bigint")
    assert t.head.version == 0
    t.alter.set_properties({"delta.enableTypeWidening": True})
    t.alter.change_type("id", "bigint")
    operation, parameters = t.last()
    assert operation == "CHANGE COLUMN"
    assert parameters["column"]["metadata"] == {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    t.alter.change_type("s.x", pa.float64())
    t.alter.change_type("l.element.e", "int")
    t.alter.change_type("m.value", "decimal(12,2)")
    assert t.alter.change_type("m.value", "decimal(12,2)") == t.head.version == 5
    t.append({"id": 1 << 40, "s": {"x": 0.5}, "l": [{"e": 1 << 20}], "p": "u"})
    rows = t.rows()
    assert [r["id"] for r in rows] == [1, 1 << 40, 2]
    assert rows[0]["s"] == {"x": 1.0, "y": "a"}
    assert rows[0]["m"] == [("k", 1)]
    for wrong in ("int", "string", "double"):
        with pytest.raises(InvalidArgumentError, match="cannot change from long"):
            t.alter.change_type("id", wrong)
    changes = t.head.schema.field("m").metadata["delta.typeChanges"]
    assert changes == [{"fromType": "short", "toType": "decimal(12,2)", "fieldPath": "value"}]


def test_bounds_of_widened_floats_are_as_wide_as_their_text() -> None:
    """Other writers print 32-bit bounds in as few digits as tell them apart: 0.7 is 0.699999988 as a double."""
    uri = f"memory://alter-{uuid4()}"
    log = DeltaLog(open_store(uri), standard_engine())
    trilake.write(pa.table({"f": pa.array([0.7], pa.float32())}), uri, properties={"delta.enableTypeWidening": "true"})
    add = dict(log.snapshot().adds.to_pylist()[0])
    stats = '{"numRecords":1,"minValues":{"f":0.7},"maxValues":{"f":0.7},"nullCount":{"f":0}}'
    again = {k: v for k, v in add.items() if v is not None} | {"stats": stats, "partitionValues": {}, "tags": {}}
    commit(log, log.head(), CommitPlan("WRITE", {}, [{"add": {**again, "dataChange": False}}]))
    Alter(log).change_type("f", "double")
    assert trilake.open(uri).to_arrow(filter="f < 0.7").num_rows == 1
    assert trilake.open(uri).to_arrow(filter="f < 0.69").num_rows == 0


def test_limits_of_strings_can_be_raised() -> None:
    t = Case()
    t.alter.add_columns({"v": "varchar(2)", "n": "struct<c: char(2), v: varchar(2)>"})
    t.alter.change_type("v", "varchar(4)")
    t.alter.change_type("n.v", "string")
    t.alter.change_type("n.c", "string")
    t.append({"id": 3, "v": "abcd", "n": {"c": "x", "v": "long enough"}, "p": "u"})
    assert t.rows("id", "n")[2]["n"] == {"c": "x", "v": "long enough"}
    with pytest.raises(InvalidArgumentError, match="cannot change"):
        t.alter.change_type("v", "varchar(3)")
    t.alter.change_type("v", "string")
    assert t.head.schema.field("v").metadata == {}


def test_not_null() -> None:
    t = Case()
    t.alter.set_not_null("id")
    t.alter.set_not_null("s.x")
    assert not t.head.schema.field("id").nullable
    with pytest.raises(ConstraintViolatedError, match="id"):
        t.append({"id": None, "p": "u"})
    t.append({"id": 3, "s": None, "p": "u"})
    with pytest.raises(ConstraintViolatedError, match=r"x"):
        t.append({"id": 4, "s": {"x": None, "y": "a"}, "p": "u"})
    with pytest.raises(ConstraintViolatedError, match=r"NOT NULL of column s.*s = null"):
        t.alter.set_not_null("s")
    with pytest.raises(InvalidArgumentError, match="inside an array or map"):
        t.alter.set_not_null("l.element.e")
    assert t.alter.set_not_null("id") == t.head.version
    t.alter.set_nullable("id")
    t.append({"id": None, "p": "u"})
    assert t.head.schema.field("id").nullable


def test_comments() -> None:
    t = Case()
    t.alter.comment("the number", "id")
    t.alter.comment("in the list", "l.element.e")
    assert t.head.schema.field("id").metadata == {"comment": "the number"}
    t.alter.comment(None, "id")
    assert t.head.schema.field("id").metadata == {}
    t.alter.comment("what it is for")
    assert t.last() == ("SET TBLPROPERTIES", {"properties": {"comment": "what it is for"}})
    assert t.log.head().metadata.description == "what it is for"
    t.alter.comment(None)
    assert t.log.head().metadata.description is None
    assert t.alter.comment(None) == t.head.version


def test_defaults() -> None:
    t = Case()
    t.alter.set_default("id", "40 + 2")
    assert has_feature(t.head.protocol, "allowColumnDefaults")
    t.append({"p": "u"})
    assert t.rows("id") == [{"id": 1}, {"id": 2}, {"id": 42}]
    for column, expression in [("id", "p"), ("id", "'a'"), ("s.x", "1")]:
        with pytest.raises((ExpressionError, InvalidArgumentError)):
            t.alter.set_default(column, expression)
    t.alter.drop_default("id")
    t.append({"p": "u"})
    assert t.rows("id")[-1] == {"id": None}


# --- properties ------------------------------------------------------------------------------------------------------


def test_properties_and_the_features_they_need() -> None:
    t = Case()
    t.alter.set_properties({"delta.ENABLEchangedatafeed": "TRUE", "team": "x"})
    assert t.last() == ("SET TBLPROPERTIES", {"properties": {"delta.ENABLEchangedatafeed": "TRUE", "team": "x"}})
    assert t.head.protocol == Protocol(1, 7, None, ("appendOnly", "changeDataFeed", "invariants"))
    assert dict(t.head.metadata.configuration) == {"delta.enableChangeDataFeed": "true", "team": "x"}
    t.alter.set_properties({"delta.feature.deletionVectors": "supported", "delta.enableInCommitTimestamps": "true"})
    assert t.head.protocol.reader_features == ("deletionVectors",)
    assert {"changeDataFeed", "inCommitTimestamp", "deletionVectors"} <= set(t.head.protocol.writer_features or ())
    assert t.head.metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    assert t.alter.set_properties({"team": "x"}) == 2
    t.alter.unset_properties("team", "delta.enableChangeDataFeed")
    assert t.last()[1] == {"properties": ["team", "delta.enableChangeDataFeed"], "ifExists": False}
    with pytest.raises(InvalidArgumentError, match="team are not set"):
        t.alter.unset_properties("team")
    assert t.alter.unset_properties("team", if_exists=True) == 3
    with pytest.raises(UnknownOptionError):
        t.alter.set_properties({"delta.typo": "1"})


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"delta.columnMapping.mode": "id"}, "only when a table is created"),
        ({"delta.dataSkippingStatsColumns": "id,what"}, "no column what"),
        ({"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2"),
        ({"delta.feature.catalogManaged": "supported"}, "catalogManaged"),
        ({"delta.minReaderVersion": "3"}, "writer version 7"),
        ({"delta.constraints.c": "id > 0"}, "add_constraint"),
    ],
)
def test_properties_that_do_not_fit(properties: dict[str, str], says: str) -> None:
    t = Case()
    with pytest.raises(TrilakeError) as caught:
        t.alter.set_properties(properties)
    assert says in str(caught.value)
    assert t.head.version == 0


def test_the_change_feed_needs_its_names() -> None:
    t = Case()
    t.alter.add_columns({"_change_type": "string"})
    with pytest.raises(InvalidArgumentError, match="_change_type"):
        t.alter.set_properties({"delta.enableChangeDataFeed": "true"})


def test_mapping_turned_on_stays_on() -> None:
    t = Case()
    t.alter.set_properties(MAPPED)
    assert t.head.protocol == Protocol(2, 7, None, ("appendOnly", "columnMapping", "invariants"))
    assert t.rows()[0]["s"] == {"x": 1, "y": "a"}
    with pytest.raises(InvalidArgumentError, match="drop the table feature"):
        t.alter.unset_properties("delta.columnMapping.mode")


def test_row_ids_for_rows_that_are_there() -> None:
    t = Case()
    t.alter.set_properties({"delta.enableRowTracking": "true"})
    adds = t.log.snapshot().adds
    assert adds["baseRowId"].null_count == 0
    assert sorted(adds["baseRowId"].to_pylist()) == [0, 1]
    operations = [t.log.commit_info(v)["operation"] for v in range(t.head.version + 1)]
    assert operations == ["WRITE", "SET TBLPROPERTIES", "ROW TRACKING BACKFILL", "SET TBLPROPERTIES"]
    name = t.head.properties.text("delta.rowTracking.materializedRowIdColumnName")
    assert name is not None
    assert name.startswith("_row-id-col-")
    assert len(t.rows()) == 2


# --- constraints -----------------------------------------------------------------------------------------------------


def test_constraints_hold_for_old_and_new_rows() -> None:
    t = Case()
    t.alter.add_constraint("Positive", "id > 0")
    assert t.last() == ("ADD CONSTRAINT", {"name": "Positive", "expr": "id > 0"})
    assert t.head.protocol == Protocol(1, 3)
    assert t.head.metadata.configuration == {"delta.constraints.positive": "id > 0"}
    with pytest.raises(ConstraintViolatedError, match="id = -1"):
        t.append({"id": -1, "p": "u"})
    with pytest.raises(ConstraintViolatedError, match=r"small.*id = 2"):
        t.alter.add_constraint("small", "id < 2")
    with pytest.raises(InvalidArgumentError, match="already"):
        t.alter.add_constraint("POSITIVE", "true")
    for wrong in ("what > 1", "id + 1", "id >"):
        with pytest.raises((ExpressionError, TrilakeError)):
            t.alter.add_constraint("wrong", wrong)
    assert t.head.version == 1
    t.alter.drop_constraint("positive")
    assert t.last() == ("DROP CONSTRAINT", {"name": "positive", "expr": "id > 0"})
    t.append({"id": -1, "p": "u"})
    with pytest.raises(InvalidArgumentError, match="there is no constraint"):
        t.alter.drop_constraint("positive")
    assert t.alter.drop_constraint("positive", if_exists=True) == t.head.version


def test_conditions_that_only_spark_knows() -> None:
    t = Case()
    text = "regexp_replace(p, 'a', 'b') <> aes_encrypt(p, 'k')"
    with pytest.raises(UnsupportedExpressionError, match="Spark"):
        t.alter.add_constraint("c", text)
    asked: list[tuple[int, str]] = []

    def find(snapshot: Snapshot, condition: str) -> Mapping[str, Any] | None:
        asked.append((snapshot.version, condition))
        return {"id": 7}

    with pytest.raises(ConstraintViolatedError, match="id = 7"):
        Alter(t.log, find_violation=find).add_constraint("c", text)
    assert asked == [(0, text)]


# --- others meanwhile ------------------------------------------------------------------------------------------------


def intruding(t: Case, *rows: dict[str, Any], change: Any = None) -> Runtime:
    """A runtime under which another writer commits once, right before this one's commit."""
    left = [1]

    def new_id() -> str:
        if left:
            left.clear()
            if change is not None:
                change(Alter(t.log))
            else:
                t.append(*rows)
        return str(uuid4())

    return replace(SYSTEM_RUNTIME, new_id=new_id)


def test_an_append_meanwhile_is_no_conflict() -> None:
    t = Case()
    assert Alter(t.log, runtime=intruding(t, {"id": 3, "p": "u"})).add_columns({"n": "int"}) == 2
    assert t.rows("id", "n")[2] == {"id": 3, "n": None}


def test_rows_that_arrive_meanwhile_are_checked_too() -> None:
    t = Case()
    with pytest.raises(ConstraintViolatedError, match="id = -3"):
        Alter(t.log, runtime=intruding(t, {"id": -3, "p": "u"})).add_constraint("c", "id > 0")
    assert t.head.version == 1
    t = Case()
    assert Alter(t.log, runtime=intruding(t, {"id": 3, "p": "u"})).add_constraint("c", "id > 0") == 2


def test_a_change_meanwhile_is_built_upon() -> None:
    t = Case()
    other = Alter(t.log, runtime=intruding(t, change=lambda a: a.add_columns({"theirs": "int"})))
    assert other.add_columns({"ours": "int"}) == 2
    assert t.head.schema.names[-2:] == ["theirs", "ours"]
    t = Case()
    with pytest.raises(InvalidArgumentError, match="already"):
        Alter(t.log, runtime=intruding(t, change=lambda a: a.add_columns({"n": "int"}))).add_columns({"N": "int"})


def test_many_change_one_table_at_once() -> None:
    t = Case()
    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(lambda i: Alter(t.log).add_columns({f"c{i}": "int"}), range(12)))
    assert sorted(versions) == list(range(1, 13))
    assert sorted(t.head.schema.names[5:]) == sorted(f"c{i}" for i in range(12))


# --- pure ------------------------------------------------------------------------------------------------------------


def table(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        "t",
        StructType(fields).json(),
        configuration={f"delta.{k.replace('__', '.')}": v for k, v in configuration.items()},
    )


LONG = PrimitiveType("long")


def test_rules_that_mention_a_column() -> None:
    m = table(
        StructField("a", LONG, metadata={"delta.invariants": '{"expression":{"expression":"a > 3"}}'}),
        StructField("b", LONG, metadata={"delta.generationExpression": "year(`D ate`) + 1"}),
        StructField("D ate", PrimitiveType("date")),
        StructField("s", StructType((StructField("a", LONG), StructField("c", LONG)))),
        constraints__one="b <> 'a' and s.c > 0",
    )
    found = {p: len(dependents(m, p)) for p in [("a",), ("b",), ("D ate",), ("s",), ("s", "a"), ("s", "c"), ("c",)]}
    assert found == {("a",): 1, ("b",): 1, ("D ate",): 1, ("s",): 1, ("s", "a"): 0, ("s", "c"): 1, ("c",): 1}


def test_the_preview_of_type_widening_notes_the_version() -> None:
    preview = Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",))
    m = table(StructField("a", PrimitiveType("integer")), enableTypeWidening="true")
    change = change_type(preview, m, "a", LONG, version=9)
    assert change.metadata.schema.field("a").metadata["delta.typeChanges"] == [
        {"tableVersion": 9, "fromType": "integer", "toType": "long"}
    ]
    assert change.protocol == preview


def test_computed_columns_have_no_default() -> None:
    m = table(StructField("a", LONG, metadata={"delta.identity.start": 1, "delta.identity.step": 1}))
    with pytest.raises(InvalidArgumentError, match="computed"):
        alter.set_default(Protocol(1, 6), m, "a", "1", now=dt.datetime.now(dt.UTC))


def test_clustering_columns_follow_their_names() -> None:
    t = Case(properties=MAPPED)
    with pytest.raises(InvalidArgumentError, match="not both"):
        t.alter.cluster_by("id")
    t = Case(properties=MAPPED, partition_by=None)
    t.alter.cluster_by("id", "S.X")
    assert t.last() == ("CLUSTER BY", {"oldClusteringColumns": "", "newClusteringColumns": "id,s.x"})
    assert t.alter.cluster_by("ID", "s.x") == t.head.version == 1
    t.alter.rename_column("id", "number")
    assert clustering_columns(t.head) == [("number",), ("s", "x")]
    for path in ("number", "s", "s.x"):
        with pytest.raises(InvalidArgumentError, match="clustered by it"):
            t.alter.drop_columns(path)
    with pytest.raises(InvalidArgumentError, match="cannot be clustered"):
        t.alter.cluster_by("l")
    t.alter.cluster_by()
    assert clustering_columns(t.head) == []
    t.alter.drop_columns("number")


def test_a_missing_column_lists_what_there_is() -> None:
    t = Case()
    with pytest.raises(SchemaMismatchError, match="the columns in s are x, y"):
        t.alter.comment("c", "s.z")
    with pytest.raises(InvalidArgumentError, match="no column path"):
        t.alter.comment("c", "s..z")
    assert mapped(table(StructField("a", LONG)), new_id=str).schema == from_arrow(pa.schema([("a", pa.int64())]))
