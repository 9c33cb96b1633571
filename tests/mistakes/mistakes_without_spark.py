"""User mistakes without Spark, each a call that must raise a helpful error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import trilake
from trilake.delta.protocol.properties import parse_properties
from trilake.storage import open_store


class Tables:
    """Tables for wrong calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.t = str(folder / "t")
        self.parts = str(folder / "parts")
        self.rules = str(folder / "rules")
        self.lance = str(folder / "lance")
        self.trevni = str(folder / "trevni")
        self.append_only = str(folder / "append_only")
        self.gone = str(folder / "gone")
        self.broken = str(folder / "broken")
        rows = {"id": [1, 2, 3], "name": ["a", "b", "c"]}
        trilake.write(rows, self.t)
        trilake.write(rows, self.t, mode="append")
        trilake.write({"p": ["x", "y"], "n": [1, 2]}, self.parts, partition_by="p")
        trilake.create(
            self.rules,
            pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32()), ("twice", pa.int64())]),
            generated={"twice": "CAST(n * 2 AS BIGINT)"},
        )
        trilake.alter(self.rules).add_constraint("small", "n < 100")
        trilake.write({"id": [1], "n": pa.array([1], pa.int32())}, self.rules, mode="append")
        trilake.write(rows, self.lance, format="lance")
        trilake.write(rows, self.trevni, format="trevni")
        trilake.write(rows, self.append_only, properties={"delta.appendOnly": "true"})
        trilake.write(rows, self.gone)
        for file in Path(self.gone).glob("*.parquet"):
            file.unlink()
        trilake.write(rows, self.broken)
        for file in Path(self.broken).glob("*.parquet"):
            file.write_bytes(b"not a Parquet file at all, but long enough to be looked at")


def _new(tables: Tables, **how: Any) -> Any:
    return trilake.write({"a": [1]}, tables.folder / "new", **how)


def _parquet_files(tables: Tables) -> Path:
    folder = tables.folder / "parquet"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    return folder


def _source() -> pa.Table:
    return pa.table({"id": [1, 1], "name": ["x", "y"]})


MISTAKES: dict[str, Callable[[Tables], Any]] = {
    # --- opening
    "open: no such folder": lambda t: trilake.open(t.folder / "nowhere"),
    "open: unknown format": lambda t: trilake.open(t.t, format="iceberg"),
    "open: Lance dataset as Delta": lambda t: trilake.open(t.lance, format="delta"),
    "open: version in the future": lambda t: trilake.open(t.t, version=99),
    "open: negative version": lambda t: trilake.open(t.t, version=-1),
    "open: timestamp before the table": lambda t: trilake.open(t.t, timestamp="2001-01-01"),
    "open: string that is not a timestamp": lambda t: trilake.open(t.t, timestamp="yesterday"),
    "open: version and timestamp": lambda t: trilake.open(t.t, version=0, timestamp="2024-01-01"),
    "open: version of Trevni": lambda t: trilake.open(t.trevni, version=0),
    "open: Lance version that is not there": lambda t: trilake.open(t.lance, version=77),
    "open: unknown scheme": lambda t: trilake.open("gopher://host/t"),
    "open: empty path": lambda t: trilake.open(""),
    "open: version as a string": lambda t: trilake.open(t.t, version="one"),
    "open: a data file": lambda t: trilake.open(next(Path(t.t).glob("*.parquet"))),
    "open: Parquet files without a log": lambda t: trilake.open(_parquet_files(t)),
    # --- reading
    "read: column that is not there": lambda t: trilake.open(t.t).to_arrow(["nmae"]),
    "read: Lance column that is not there": lambda t: trilake.open(t.lance).to_arrow(["nmae"]),
    "read: Trevni column that is not there": lambda t: trilake.open(t.trevni).to_arrow(["nmae"]),
    "filter: column that is not there": lambda t: trilake.open(t.t).count("idd = 1"),
    "filter: unbalanced bracket": lambda t: trilake.open(t.t).count("(id = 1"),
    "filter: empty": lambda t: trilake.open(t.t).count(""),
    "filter: not boolean": lambda t: trilake.open(t.t).count("id + 1"),
    "filter: two statements": lambda t: trilake.open(t.t).count("id = 1; DROP TABLE t"),
    "filter: unknown function": lambda t: trilake.open(t.t).count("soundexx(name) = 'a'"),
    "filter: string against a number": lambda t: trilake.open(t.t).count("id = 'abc'"),
    "filter: Arrow expression over a missing column": lambda t: trilake.open(t.t).count(pc.field("x") == 1),
    "filter: a number": lambda t: trilake.open(t.t).count(7),
    "filter: subquery": lambda t: trilake.open(t.t).count("id IN (SELECT 1)"),
    "filter: Lance column that is not there": lambda t: trilake.open(t.lance).count("idd = 1"),
    "filter: string without quotes": lambda t: trilake.open(t.t).count("name = a"),
    "filter: another argument's name": lambda t: trilake.open(t.t).count(where="id = 1"),
    "filter: tuples of pyarrow": lambda t: trilake.open(t.t).to_arrow(filter=[("id", "=", 1)]),
    "filter: aggregate": lambda t: trilake.open(t.t).count("id = max(id)"),
    "filter: function without its argument": lambda t: trilake.open(t.t).count("upper() = 'A'"),
    "filter: day that is not in the calendar": lambda t: trilake.open(t.t).count("DATE '2024-02-30' = current_date()"),
    "filter: string that does not end": lambda t: trilake.open(t.t).count("name = 'a"),
    "read: columns as a number": lambda t: trilake.open(t.t).to_arrow(1),
    "read: misspelt argument": lambda t: trilake.open(t.t).to_arrow(colums=["id"]),
    "read: data file missing": lambda t: trilake.open(t.gone).to_arrow(),
    "read: data file damaged": lambda t: trilake.open(t.broken).to_arrow(),
    "read: limit of minus one": lambda t: trilake.open(t.t).limit(-1),
    "changes: feed not recorded": lambda t: trilake.open(t.t).changes(0, 1),
    "changes: end before start": lambda t: trilake.open(t.t).changes(1, 0),
    "changes: version in the future": lambda t: trilake.open(t.t).changes(9),
    "history: limit of minus one": lambda t: trilake.open(t.t).history(-1),
    "diff: path of the other table": lambda t: trilake.open(t.t).diff(t.t),
    "diff: key that is not there": lambda t: trilake.open(t.t).diff(trilake.open(t.t), key="idd"),
    # --- writing
    "write: table is there": lambda t: trilake.write({"id": [1]}, t.t),
    "write: unknown mode": lambda t: trilake.write({"id": [1]}, t.t, mode="upsert"),
    "write: unknown format": lambda t: _new(t, format="iceberg"),
    "write: a number for the rows": lambda t: trilake.write(7, t.t, mode="append"),
    "write: empty list": lambda t: trilake.write([], t.t, mode="append"),
    "write: columns of two lengths": lambda t: trilake.write({"a": [1], "b": [1, 2]}, t.folder / "new"),
    "write: rows of mixed types": lambda t: trilake.write([{"a": 1}, {"a": "x"}], t.folder / "new"),
    "write: new column": lambda t: trilake.write({"id": [1], "name": ["x"], "age": [3]}, t.t, mode="append"),
    "write: wrong type": lambda t: trilake.write({"id": ["one"], "name": ["x"]}, t.t, mode="append"),
    "write: new column and wrong type": lambda t: trilake.write({"id": ["x"], "age": [3]}, t.t, mode="append"),
    "write: value out of range": lambda t: trilake.write({"id": [1], "n": [1 << 40]}, t.rules, mode="append"),
    "write: partition column that is not there": lambda t: _new(t, partition_by="day"),
    "write: partitioned by every column": lambda t: _new(t, partition_by="a"),
    "write: other partitioning": lambda t: trilake.write(
        {"p": ["x"], "n": [1]}, t.parts, mode="append", partition_by="n"
    ),
    "write: unknown property": lambda t: _new(t, properties={"delta.apendOnly": "true"}),
    "write: property with a wrong value": lambda t: _new(t, properties={"delta.appendOnly": "perhaps"}),
    "write: property of a table that is there": lambda t: trilake.write(
        {"id": [1], "name": ["x"]}, t.t, mode="append", properties={"delta.appendOnly": "true"}
    ),
    "write: overwrite of an append-only table": lambda t: trilake.write({"id": [1]}, t.append_only, mode="overwrite"),
    "write: replace_where without overwrite": lambda t: trilake.write(
        {"id": [1]}, t.t, mode="append", replace_where="id = 1"
    ),
    "write: row outside of replace_where": lambda t: trilake.write(
        {"id": [9], "name": ["x"]}, t.t, mode="overwrite", replace_where="id = 1"
    ),
    "write: replace_where with a wrong column": lambda t: trilake.write(
        {"id": [9], "name": ["x"]}, t.t, mode="overwrite", replace_where="idd = 1"
    ),
    "write: unknown schema mode": lambda t: trilake.write({"id": [1]}, t.t, mode="append", schema_mode="grow"),
    "write: schema overwritten on append": lambda t: trilake.write(
        {"id": [1]}, t.t, mode="append", schema_mode="overwrite"
    ),
    "write: schemas that cannot be merged": lambda t: trilake.write(
        {"id": [True]}, t.t, mode="append", schema_mode="merge"
    ),
    "write: unknown isolation": lambda t: trilake.write({"id": [1]}, t.t, mode="append", isolation="Chaos"),
    "write: log options for Trevni": lambda t: trilake.write(
        {"id": [1]}, t.trevni, mode="append", format="trevni", txn=("a", 1)
    ),
    "write: partitions for Lance": lambda t: trilake.write(
        {"a": [1]}, t.folder / "l", format="lance", partition_by="a"
    ),
    "write: unknown Lance option": lambda t: trilake.write(
        {"a": [1]}, t.folder / "l", format="lance", properties={"rows": "1"}
    ),
    "write: unknown Trevni codec": lambda t: trilake.write(
        {"a": [1]}, t.folder / "v", format="trevni", properties={"codec": "zipp"}
    ),
    "write: other columns into Lance": lambda t: trilake.write(
        {"id": [1], "x": [1]}, t.lance, mode="append", format="lance"
    ),
    "write: other columns into Trevni": lambda t: trilake.write(
        {"id": [1], "x": [1]}, t.trevni, mode="append", format="trevni"
    ),
    "write: no columns": lambda t: trilake.write(pa.table({}), t.folder / "new"),
    "write: column of nulls only": lambda t: trilake.write({"a": [None]}, t.folder / "new"),
    "write: two columns that differ by case": lambda t: trilake.write({"a": [1], "A": [2]}, t.folder / "new"),
    "write: type that Delta does not have": lambda t: trilake.write(
        {"a": pa.array([1], pa.duration("us"))}, t.folder / "new"
    ),
    "write: null where none may be": lambda t: trilake.write(
        {"id": pa.array([None], pa.int64())}, t.rules, mode="append"
    ),
    "write: required column left out": lambda t: trilake.write(
        {"n": pa.array([1], pa.int32())}, t.rules, mode="append"
    ),
    "write: constraint broken": lambda t: trilake.write({"id": [1], "n": [500]}, t.rules, mode="append"),
    "write: generated column with another value": lambda t: trilake.write(
        {"id": [1], "n": [5], "twice": [11]}, t.rules, mode="append"
    ),
    "write: arguments the other way round": lambda t: trilake.write(t.folder / "new", {"a": [1]}),
    "write: columns that are not lists": lambda t: trilake.write({"a": 1, "b": 2}, t.folder / "new"),
    "write: rows as tuples": lambda t: trilake.write([(1, "a")], t.folder / "new"),
    "write: overwrite with another column": lambda t: trilake.write({"id": [1], "age": [3]}, t.t, mode="overwrite"),
    "write: transaction without a version": lambda t: trilake.write({"id": [1]}, t.t, mode="append", txn="nightly"),
    "write: no location": lambda t: trilake.write({"a": [1]}, None),
    # --- changing
    "delete: column that is not there": lambda t: trilake.open(t.t).delete("idd = 1"),
    "delete: append-only table": lambda t: trilake.open(t.append_only).delete("id = 1"),
    "delete: number for a predicate": lambda t: trilake.open(t.t).delete(1),
    "update: column that is not there": lambda t: trilake.open(t.t).update({"nmae": "'x'"}),
    "update: expression over a missing column": lambda t: trilake.open(t.t).update({"name": "nam"}),
    "update: value of another type": lambda t: trilake.open(t.t).update({"id": "'one'"}),
    "update: constraint broken": lambda t: trilake.open(t.rules).update({"n": "500"}),
    "update: string without quotes": lambda t: trilake.open(t.t).update({"name": "Rome"}),
    "update: condition first": lambda t: trilake.open(t.t).update("id = 1", {"name": "'x'"}),
    "delete: no condition": lambda t: trilake.open(t.append_only).delete(),
    "update: nothing to set": lambda t: trilake.open(t.t).update({}),
    "merge: no source": lambda t: (
        trilake.open(t.t).merge(None, "source.id = target.id").when_matched_delete().execute()
    ),
    "merge: no clause": lambda t: trilake.open(t.t).merge(_source(), "source.id = target.id").execute(),
    "merge: column that is not there": lambda t: (
        trilake.open(t.t).merge(_source(), "source.key = target.id").when_matched_delete().execute()
    ),
    "merge: name that both sides have": lambda t: (
        trilake.open(t.t).merge(_source(), "id = id").when_matched_delete().execute()
    ),
    "merge: several matches": lambda t: (
        trilake.open(t.t).merge(_source(), "source.id = target.id").when_matched_update_all().execute()
    ),
    "merge: condition that is not a string": lambda t: trilake.open(t.t).merge(_source(), 5),
    "merge: name of a column for the condition": lambda t: trilake.open(t.t).merge(_source(), "id"),
    "merge: alias that is not there": lambda t: (
        trilake.open(t.t).merge(_source(), "s.id = t.id").when_matched_update_all().execute()
    ),
    "merge: assignment to a missing column": lambda t: (
        trilake.open(t.t)
        .merge(_source(), "source.id = target.id")
        .when_matched_update({"nmae": "source.name"})
        .execute()
    ),
    # --- definitions
    "create: table is there": lambda t: trilake.create(t.t, {"a": "int"}),
    "create: unknown type": lambda t: trilake.create(t.folder / "new", {"a": "integr"}),
    "create: unknown mode": lambda t: trilake.create(t.folder / "new", {"a": "int"}, mode="maybe"),
    "create: rule of a missing column": lambda t: trilake.create(t.folder / "new", {"a": "int"}, defaults={"b": "1"}),
    "create: identity of a string": lambda t: trilake.create(t.folder / "new", {"a": "string"}, identity=["a"]),
    "create: partitioned and clustered": lambda t: trilake.create(
        t.folder / "new", {"a": "int", "b": "int"}, partition_by="a", cluster_by="b"
    ),
    "create: schema as a string": lambda t: trilake.create(t.folder / "new", "id int"),
    "alter: column that is there": lambda t: trilake.alter(t.t).add_columns({"id": "int"}),
    "alter: drop of a missing column": lambda t: trilake.alter(t.t).drop_columns("idd"),
    "alter: no table": lambda t: trilake.alter(t.folder / "nowhere"),
    "alter: constraint that rows break": lambda t: trilake.alter(t.t).add_constraint("big", "id > 2"),
    "alter: constraint of a missing column": lambda t: trilake.alter(t.t).add_constraint("big", "idd > 2"),
    "alter: constraint that is there": lambda t: trilake.alter(t.rules).add_constraint("small", "n < 5"),
    "alter: drop of a missing constraint": lambda t: trilake.alter(t.t).drop_constraint("big"),
    "alter: rename without column mapping": lambda t: trilake.alter(t.t).rename_column("id", "key"),
    "alter: drop without column mapping": lambda t: trilake.alter(t.t).drop_columns("id"),
    "alter: type that cannot become another": lambda t: trilake.alter(t.t).change_type("name", "int"),
    "alter: unknown feature": lambda t: trilake.alter(t.t).add_feature("timeMachine"),
    "alter: unknown property": lambda t: trilake.alter(t.t).set_properties({"delta.speed": "high"}),
    # --- maintenance
    "vacuum: retention too short": lambda t: trilake.open(t.t).vacuum(retention_hours=0),
    "vacuum: negative retention": lambda t: trilake.open(t.t).vacuum(retention_hours=-5),
    "vacuum: retention as a string": lambda t: trilake.open(t.t).vacuum(retention_hours="7 days"),
    "vacuum: flag as a string": lambda t: trilake.open(t.t).vacuum(dry_run="false"),
    "restore: version as a string": lambda t: trilake.open(t.t).restore(version="one"),
    "optimize: order by a partition column": lambda t: trilake.open(t.parts).optimize(zorder_by="p"),
    "convert: unknown format": lambda t: trilake.convert(t.t, t.folder / "new", format="iceberg"),
    "sql: table that is not there": lambda t: trilake.sql("SELECT * FROM nowhere"),
    "sql: folder that is not there": lambda t: trilake.sql(f"SELECT * FROM '{t.folder}/nowhere'"),
    "sql: column that is not there": lambda t: trilake.sql(f"SELECT nmae FROM '{t.t}'"),
    "sql: misspelt keyword": lambda t: trilake.sql(f"SELCT * FROM '{t.t}'"),
    "sql: version that is not there": lambda t: trilake.sql(f"SELECT * FROM delta.`{t.t}` VERSION AS OF 99"),
    "sql: query that is cut short": lambda t: trilake.sql("SELECT 1 WHERE"),
    "sql: columns that do not fit": lambda t: trilake.sql(f"INSERT INTO delta.`{t.t}` VALUES (1)"),
    "sql: aggregate without GROUP BY": lambda t: trilake.sql(f"SELECT name, max(id) FROM '{t.t}'"),
    "optimize: condition over data": lambda t: trilake.open(t.t).optimize("id = 1"),
    "optimize: order by a missing column": lambda t: trilake.open(t.t).optimize(zorder_by="idd"),
    "restore: version that is not there": lambda t: trilake.open(t.t).restore(version=50),
    "restore: neither version nor timestamp": lambda t: trilake.open(t.t).restore(),
    "clone: onto a table": lambda t: trilake.open(t.t).clone(t.parts),
    "generate: unknown mode": lambda t: trilake.open(t.t).generate("iceberg"),
    "convert: folder without files": lambda t: trilake.convert_to_delta(t.folder / "nowhere"),
    "convert: onto a table": lambda t: trilake.convert(t.t, t.parts, format="delta"),
    "properties: a number": lambda t: parse_properties({"delta.checkpointInterval": "often"}),
    "storage: key outside of the table": lambda t: open_store(t.t).read("../x"),
}
