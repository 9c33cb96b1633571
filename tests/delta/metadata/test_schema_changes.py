"""ALTER TABLE on tables with rows: columns, types, comments and defaults, each as one commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import trilake
from tests.delta.commands.alter.alter_case import MAPPED, Case
from tests.delta.tables import new_uri
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.metadata import schema_changes as alter
from trilake.delta.metadata.column_changes import change_type, replace_columns
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import mapped
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType, from_arrow
from trilake.delta.standard import standard_engine
from trilake.errors import (
    ConstraintViolatedError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TrilakeError,
)
from trilake.storage import open_store

# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [None, MAPPED], ids=["plain", "mapped"])
def test_added_columns_are_null_and_accept_values(properties: Mapping[str, str] | None) -> None:
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
        ({"ID": "int"}, {}, "column id already exists"),
        ({"s.Y": "int"}, {}, "column s.y already exists"),
        ({"nothing.a": "int"}, {}, "no column nothing"),
        ({"l.a": "int"}, {}, "continue the path with element"),
        ({"id.a": "int"}, {}, "integer, which has no fields"),
        ({"a": "int"}, {"after": "b"}, "no column b, after which"),
        ({"a": "int"}, {"after": "id", "first": True}, "not both"),
        ({"a": "integr"}, {}, "integr"),
        ({"a b": "int"}, {}, "delta.columnMapping.mode"),
        ([pa.field("a", pa.int8(), nullable=False)], {}, "must not be null"),
        ({"a": "struct<b: int not null>"}, {}, "has a field b that must not be null"),
        ({"s.a": "array<map<int, struct<b: int not null>>>"}, {}, "has a field b that must not be null"),
        ({"a": "void"}, {}, "has no type"),
        ([StructField("a", PrimitiveType("long"), True, {"CURRENT_DEFAULT": "1"})], {}, "has a default"),
        (
            [StructField("a", PrimitiveType("long"), True, {"delta.generationExpression": "id"})],
            {},
            "is a generated or identity column",
        ),
        ([pa.field("a", pa.int64(), metadata={"delta.identity.start": "1"})], {}, "is a generated or identity column"),
        (pa.schema([pa.field("a", pa.int64(), metadata={"CURRENT_DEFAULT": "1"})]), {}, "has a default"),
        ({}, {}, "no columns"),
        ("a int", {}, "list of fields"),
        (["a"], {}, "not a field"),
    ],
)
def test_invalid_new_columns_are_rejected(columns: Any, more: dict[str, Any], says: str) -> None:
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


def test_rename_to_an_invalid_name_is_rejected() -> None:
    t = Case(properties=MAPPED)
    for path, name, says in (
        ("id", "id", "column id already"),
        ("s.x", "x", "s.x"),
        ("s.x", "Y", "s.y"),
        ("id", " ", ""),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            t.alter.rename_column(path, name)
    assert t.alter.rename_column("id", "Id") == 1


def test_swapped_names_do_not_swap_values() -> None:
    t = Case(properties=MAPPED)
    t.alter.add_columns({"other": "int"})
    t.append({"id": 3, "other": 30, "p": "u"})
    for old, new in (("id", "x"), ("other", "id"), ("x", "other")):
        t.alter.rename_column(old, new)
    assert sorted((r["id"] or 0, r["other"]) for r in t.rows()) == [(0, 1), (0, 2), (30, 3)]


def test_readded_columns_are_empty() -> None:
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
def test_rename_and_drop_need_column_mapping(what: str, path: str) -> None:
    t = Case()
    with pytest.raises(InvalidArgumentError, match=rf"cannot {what} a column.*delta.columnMapping.mode to 'name'"):
        t.alter.rename_column(path, "n") if what == "rename" else t.alter.drop_columns(path)
    t.alter.set_properties(MAPPED)
    t.alter.rename_column(path, "n")
    assert t.head.version == 2


def test_columns_in_use_are_not_dropped() -> None:
    t = Case(properties=MAPPED)
    t.alter.add_constraint("c", "id > 0 and s.x < 9 or S.Y = 'id' or s is null")
    for path, says in [
        (("p",), "partitioned by this column"),
        (("id",), "CHECK constraint c"),
        (("s",), "CHECK constraint c"),
        (("s.y",), "CHECK constraint c"),
        (("l.element.e",), "is the only column"),
        (("l.element",), "not a column"),
        (("x",), "the columns are id, s, l, m, p"),
        ((), "no columns"),
    ]:
        with pytest.raises(TrilakeError) as caught:
            t.alter.drop_columns(*path)
        assert says in str(caught.value)
    t.alter.drop_columns("m", "l")
    t.alter.drop_constraint("C")
    with pytest.raises(InvalidArgumentError, match="only partition columns left"):
        t.alter.drop_columns("id", "s")
    with pytest.raises(InvalidArgumentError, match="column id already exists"):
        t.alter.rename_column("s", "ID")
    t.alter.rename_column("id", "ID")
    assert t.head.schema.names == ["ID", "s", "p"]


def test_columns_can_be_moved() -> None:
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
def test_moving_a_column_after_itself_is_a_no_op(column: str) -> None:
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


def test_bounds_of_widened_floats_are_valid() -> None:
    """Other writers print 32-bit bounds with minimal digits: 0.7 is 0.699999988 as a double."""
    uri = new_uri()
    log = DeltaLog(open_store(uri), standard_engine())
    trilake.write(pa.table({"f": pa.array([0.7], pa.float32())}), uri, properties={"delta.enableTypeWidening": "true"})
    add = dict(log.snapshot().adds.to_pylist()[0])
    stats = '{"numRecords":1,"minValues":{"f":0.7},"maxValues":{"f":0.7},"nullCount":{"f":0}}'
    again = {k: v for k, v in add.items() if v is not None} | {"stats": stats, "partitionValues": {}, "tags": {}}
    commit(log, log.head(), CommitPlan("WRITE", {}, [{"add": {**again, "dataChange": False}}]))
    Alter(log).change_type("f", "double")
    assert trilake.open(uri).to_arrow(filter="f < 0.7").num_rows == 1
    assert trilake.open(uri).to_arrow(filter="f < 0.69").num_rows == 0


def test_string_length_limits_can_be_raised() -> None:
    t = Case()
    t.alter.add_columns({"v": "varchar(2)", "n": "struct<c: char(2), v: varchar(2)>"})
    t.alter.change_type("n.c", "varchar(2)")
    t.alter.change_type("v", "varchar(4)")
    t.alter.change_type("n.v", "string")
    t.alter.change_type("n.c", "string")
    t.append({"id": 3, "v": "abcd", "n": {"c": "x", "v": "long enough"}, "p": "u"})
    assert t.rows("id", "n")[2]["n"] == {"c": "x", "v": "long enough"}
    with pytest.raises(InvalidArgumentError, match="cannot change"):
        t.alter.change_type("v", "varchar(3)")
    t.alter.change_type("v", "string")
    assert t.head.schema.field("v").metadata == {}


def test_set_not_null_is_enforced() -> None:
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


def test_comments_are_set_and_removed() -> None:
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


def test_defaults_are_set_and_dropped() -> None:
    t = Case()
    t.alter.set_default("id", "40 + 2")
    assert has_feature(t.head.protocol, "allowColumnDefaults")
    t.append({"p": "u"})
    assert t.rows("id") == [{"id": 1}, {"id": 2}, {"id": 42}]
    for column, expression in [("id", "p"), ("id", "'a'"), ("s.x", "1")]:
        with pytest.raises((ExpressionError, InvalidArgumentError)):
            t.alter.set_default(column, expression)
    t.alter.drop_default("id")
    t.append({"p": "u", "s": None})
    assert t.rows("id")[-1] == {"id": None}


# --- pure ------------------------------------------------------------------------------------------------------------


def table(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        "t",
        StructType(fields).json(),
        configuration={f"delta.{k.replace('__', '.')}": v for k, v in configuration.items()},
    )


LONG = PrimitiveType("long")


def test_same_field_name_is_added_to_two_structs() -> None:
    struct = StructType((StructField("a", LONG),))
    both = table(StructField("x", struct), StructField("y", struct))
    z = StructField("z", LONG)
    columns = [alter.NewColumn(z, ("x",)), alter.NewColumn(z, ("y",)), alter.NewColumn(z)]
    change = alter.add_columns(Protocol(1, 2), both, columns, new_id=lambda: str(uuid4()))
    assert change.metadata.schema.names == ["x", "y", "z"]
    with pytest.raises(InvalidArgumentError, match=r"column x\.z already exists"):
        alter.add_columns(Protocol(1, 2), both, [*columns, alter.NewColumn(z, ("X",))], new_id=lambda: str(uuid4()))


def test_type_widening_preview_records_the_version() -> None:
    preview = Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",))
    m = table(StructField("a", PrimitiveType("integer")), enableTypeWidening="true")
    change = change_type(preview, m, "a", LONG, version=9)
    assert change.metadata.schema.field("a").metadata["delta.typeChanges"] == [
        {"tableVersion": 9, "fromType": "integer", "toType": "long"}
    ]
    assert change.protocol == preview


def test_identity_columns_keep_their_type() -> None:
    identity = StructField("a", LONG, metadata={"delta.identity.start": 1, "delta.identity.step": 1})
    m = table(identity, enableTypeWidening="true")
    kinds = {"decimal(20,0)": "", "double": "", "integer": "NOT_SUPPORTED_CHANGE_COLUMN"}
    for kind, condition in kinds.items():
        with pytest.raises(InvalidArgumentError) as e:
            change_type(Protocol(1, 7), m, "a", PrimitiveType(kind), version=1)
        assert e.value.condition == (condition or "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"), kind
    with pytest.raises(InvalidArgumentError, match="REPLACE COLUMNS") as rejected:
        replace_columns(Protocol(1, 6), m, [StructField("a", LONG)], new_id=str, version=1)
    assert rejected.value.condition == "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"


def test_computed_columns_reject_a_default() -> None:
    m = table(StructField("a", LONG, metadata={"delta.identity.start": 1, "delta.identity.step": 1}))
    with pytest.raises(InvalidArgumentError, match="generated or identity column") as e:
        alter.set_default(Protocol(1, 6), m, "a", "1", now=dt.datetime.now(dt.UTC))
    assert e.value.condition == "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"


def test_clustering_columns_follow_renames() -> None:
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
        with pytest.raises(InvalidArgumentError, match="clustered by this column"):
            t.alter.drop_columns(path)
    with pytest.raises(InvalidArgumentError, match="cannot be clustered"):
        t.alter.cluster_by("l")
    t.alter.cluster_by()
    assert clustering_columns(t.head) == []
    t.alter.drop_columns("number")


def test_removing_absent_clustering_does_not_commit() -> None:
    t = Case(partition_by=None)
    always = Alter(t.log, commits_always=True)  # as in SQL
    assert always.cluster_by() == 0
    assert not has_feature(t.head.protocol, "clustering")
    assert (always.cluster_by("id"), always.cluster_by(), always.cluster_by()) == (1, 2, 3)


def test_clustering_columns_keep_their_statistics() -> None:
    t = Case(partition_by=None, properties={"delta.dataSkippingNumIndexedCols": "2"})
    with pytest.raises(InvalidArgumentError, match=r"no statistics .* column s\.y"):
        t.alter.cluster_by("id", "s.y")
    t.alter.cluster_by("id", "s.x")
    for move in (lambda: t.alter.move_column("id", after="s"), lambda: t.alter.move_column("s", after="p")):
        with pytest.raises(InvalidArgumentError, match="no statistics"):
            move()
    t.alter.set_properties({"delta.dataSkippingStatsColumns": "id,s"})
    t.alter.move_column("id", after="p")
    t.alter.cluster_by("s.y")
    assert clustering_columns(t.head) == [("s", "y")]


@pytest.mark.parametrize("type", ["int", "timestamp_ntz", "array<int>"])
def test_void_column_can_get_a_type(type: str) -> None:
    uri = new_uri()
    trilake.write(pa.table({"n": [1], "v": pa.nulls(1)}), uri)
    changes = Alter(DeltaLog(open_store(uri), standard_engine()))
    with pytest.raises(InvalidArgumentError, match="cannot change"):
        changes.change_type("n", "void")
    changes.change_type("v", type)
    now = trilake.open(uri)
    assert now.to_arrow().to_pylist() == [{"n": 1, "v": None}]
    assert "delta.typeChanges" not in changes.log.head().metadata.schema_string


def test_nullability_of_keys_elements_and_values() -> None:
    t = Case()
    before = t.head.schema
    t.alter.set_not_null("m.key")
    t.alter.set_nullable("m.value")
    t.alter.set_nullable("l.element")
    assert t.head.schema == before
    with pytest.raises(InvalidArgumentError, match="never null"):
        t.alter.set_nullable("m.key")
    for path in ("m.value", "l.element"):
        with pytest.raises(InvalidArgumentError):
            t.alter.set_not_null(path)
    uri = new_uri()
    strict = pa.schema([("a", pa.list_(pa.field("element", pa.int32(), nullable=False)))])
    trilake.write(pa.Table.from_pylist([{"a": [1]}], schema=strict), uri)
    trilake.alter(uri).set_nullable("a.element")
    trilake.write({"a": [[None]]}, uri, mode="append")
    assert {str(r) for r in trilake.open(uri).to_arrow().to_pylist()} == {"{'a': [1]}", "{'a': [None]}"}


def test_missing_column_error_lists_columns() -> None:
    t = Case()
    with pytest.raises(SchemaMismatchError, match="the columns in s are x, y"):
        t.alter.comment("c", "s.z")
    with pytest.raises(InvalidArgumentError, match="not a column path"):
        t.alter.comment("c", "s..z")
    assert mapped(table(StructField("a", LONG)), new_id=str).schema == from_arrow(pa.schema([("a", pa.int64())]))
