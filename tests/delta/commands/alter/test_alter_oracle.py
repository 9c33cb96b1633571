"""Any sequence of column changes matches a plain list of rows, at every version, for trilake and other readers."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import examples
from tests.delta.tables import new_uri
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.storage import open_store

#: Types by name: the Arrow type, and what each may become.
KINDS: dict[str, tuple[pa.DataType, list[str]]] = {
    "byte": (pa.int8(), ["short", "integer", "long", "double", "decimal(12,2)"]),
    "short": (pa.int16(), ["integer", "long", "double"]),
    "integer": (pa.int32(), ["long", "double", "decimal(12,2)"]),
    "long": (pa.int64(), ["decimal(22,2)"]),
    "float": (pa.float32(), ["double"]),
    "double": (pa.float64(), []),
    "decimal(12,2)": (pa.decimal128(12, 2), ["decimal(22,2)"]),
    "decimal(22,2)": (pa.decimal128(22, 2), []),
    "string": (pa.string(), []),
    "date": (pa.date32(), ["timestamp_ntz"]),
    "timestamp_ntz": (pa.timestamp("us"), []),
}
FIRST_KINDS = ["byte", "integer", "float", "string", "date"]


@dataclass
class Column:
    """A column of the oracle; its key survives renames."""

    key: int
    name: str
    kind: str
    children: list[Column] | None = None

    @property
    def arrow(self) -> pa.DataType:
        if self.children is not None:
            return pa.struct([(c.name, c.arrow) for c in self.children])
        return KINDS[self.kind][0]


@dataclass
class Oracle:
    """Columns by key, and rows as values by key."""

    columns: list[Column] = field(default_factory=list)
    rows: list[dict[int, Any]] = field(default_factory=list)
    keys: int = 0

    def new(self, name: str, kind: str, children: list[Column] | None = None) -> Column:
        self.keys += 1
        return Column(self.keys, name, kind, children)

    def schema(self) -> pa.Schema:
        return pa.schema([(c.name, c.arrow) for c in self.columns])

    def table(self) -> pa.Table:
        """The rows with the current columns."""
        arrays = [pa.array([_value(c, r) for r in self.rows], c.arrow) for c in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.schema())


def _value(c: Column, row: dict[int, Any]) -> Any:
    if c.children is None:
        value = row.get(c.key)
        if value is None:
            return None
        if c.kind == "timestamp_ntz":
            return dt.datetime.combine(value, dt.time())
        return float(value) if c.kind in ("float", "double") else value
    if row.get(c.key) is None:
        return None
    return {child.name: _value(child, row) for child in c.children}


def sorted_reprs(table: pa.Table) -> list[str]:
    """Rows as sorted strings, so that tables compare regardless of row order."""
    return sorted(repr(list(r.items())) for r in table.to_pylist())


class Game:
    """Plays changes on a table and on the oracle, side by side."""

    def __init__(self, rng: random.Random, uri: str, *, widening: bool) -> None:
        self.rng, self.uri, self.oracle = rng, uri, Oracle()
        self.log = DeltaLog(open_store(uri), standard_engine())
        self.alter = Alter(self.log)
        self.expected: dict[int, tuple[pa.Schema, list[str]]] = {}
        o = self.oracle
        o.columns = [
            o.new("a", "integer"),
            o.new("p", "string"),
            o.new("s", "struct", [o.new("x", "byte"), o.new("y", "string")]),
        ]
        properties = {"delta.columnMapping.mode": rng.choice(["name", "id", "late"])}
        if widening:
            properties["delta.enableTypeWidening"] = "true"
        late = properties["delta.columnMapping.mode"] == "late"
        if late:
            del properties["delta.columnMapping.mode"]
        self.partition = rng.choice([None, o.columns[1].key])
        trilake.write(
            self._new_rows(), uri, partition_by=None if self.partition is None else "p", properties=properties
        )
        if late:
            self.alter.set_properties({"delta.columnMapping.mode": "name"})
        self.widening = widening
        self.note()

    def note(self) -> None:
        table = self.oracle.table()
        self.expected[self.log.head().version] = (table.schema, sorted_reprs(table))

    def _new_rows(self) -> pa.Table:
        o, rng = self.oracle, self.rng

        def leaf(c: Column) -> Any:
            if rng.random() < 0.2:
                return None
            if c.kind == "string":
                return rng.choice(["u", "v", "ä b"])
            if c.kind in ("date", "timestamp_ntz"):
                return dt.date(1900 + rng.randrange(200), 2, 3)
            return rng.randrange(100)

        start = len(o.rows)
        for _ in range(rng.randrange(1, 4)):
            row: dict[int, Any] = {}
            for c in o.columns:
                if c.children is None:
                    row[c.key] = leaf(c)
                elif rng.random() < 0.7:
                    row[c.key] = True
                    row |= {child.key: leaf(child) for child in c.children}
            o.rows.append(row)
        return o.table().slice(start)

    def pick(self, *, structs: bool = False) -> tuple[list[Column], Column, list[str]]:
        """A column, its siblings and its path."""
        o = self.oracle
        result = [(o.columns, c, [c.name]) for c in o.columns if structs or c.children is None]
        for c in o.columns:
            children = c.children or []
            result += [(children, child, [c.name, child.name]) for child in children]
        return self.rng.choice(result)

    def step(self) -> None:
        rng = self.rng
        getattr(self, rng.choice(["append", "add", "rename", "drop", "move", "widen", "comment", "checkpoint"]))()
        self.note()

    def append(self) -> None:
        trilake.write(self._new_rows(), self.uri, mode="append")

    def add(self) -> None:
        o, rng = self.oracle, self.rng
        parent = rng.choice([None, *(c for c in o.columns if c.children is not None)])
        siblings = o.columns if parent is None else parent.children
        assert siblings is not None
        new = o.new(f"n{o.keys} {rng.choice('äöü')}", rng.choice(FIRST_KINDS))
        path = f"`{new.name}`" if parent is None else f"`{parent.name}`.`{new.name}`"
        kind = {"long": "bigint"}.get(new.kind, new.kind)
        if rng.random() < 0.5:
            at = rng.randrange(len(siblings))
            after = siblings[at].name
            self.alter.add_columns({path: kind}, after=after)
            siblings.insert(at + 1, new)
        else:
            self.alter.add_columns({path: kind})
            siblings.append(new)

    def rename(self) -> None:
        o, rng = self.oracle, self.rng
        siblings, c, path = self.pick(structs=True)
        taken = {s.name.lower() for s in siblings if s is not c}
        # Reusing earlier names is the interesting case.
        name = rng.choice(
            [
                n
                for n in ["a", "p", "s", "x", "y", f"r{o.keys}", c.name.upper()]
                if n.lower() not in taken and n != c.name
            ]
        )
        self.alter.rename_column(path, name)
        c.name = name

    def drop(self) -> None:
        o = self.oracle
        siblings, c, path = self.pick(structs=True)
        files = [s for s in o.columns if s.key != self.partition]
        if c.key == self.partition or len(siblings) == 1 or (siblings is o.columns and files == [c]):
            return
        self.alter.drop_columns(path)
        siblings.remove(c)

    def move(self) -> None:
        siblings, c, path = self.pick(structs=True)
        others = [s for s in siblings if s is not c]
        after = self.rng.choice([None, *others])
        if after is None:
            self.alter.move_column(path, first=True)
        else:
            self.alter.move_column(path, after=after.name)
        siblings.remove(c)
        siblings.insert(0 if after is None else siblings.index(after) + 1, c)

    def widen(self) -> None:
        _, c, path = self.pick()
        wider = KINDS[c.kind][1]
        if not self.widening or not wider:
            return
        kind = self.rng.choice(wider)
        self.alter.change_type(path, kind)
        c.kind = kind

    def comment(self) -> None:
        _, _, path = self.pick(structs=True)
        self.alter.comment("a comment", path)

    def checkpoint(self) -> None:
        write_checkpoint(self.log, self.log.snapshot(), SYSTEM_RUNTIME)

    def check(self) -> None:
        """Check that every version reads as when it was written."""
        for version, (schema, rows) in self.expected.items():
            result = trilake.open(self.uri, version=version).to_arrow()
            assert result.schema.names == schema.names
            assert sorted_reprs(result.cast(schema)) == rows, f"version {version}"


@given(st.randoms(use_true_random=False), st.integers(1, 10))
@settings(max_examples=examples(12))
def test_any_sequence_of_changes_matches_the_oracle(rng: random.Random, steps: int) -> None:
    game = Game(rng, new_uri(), widening=True)
    for _ in range(steps):
        game.step()
    game.check()


@pytest.mark.parametrize("seed", range(6))
def test_deltalake_reads_altered_columns(seed: int, tmp_path: Path) -> None:
    game = Game(random.Random(seed), str(tmp_path / "t"), widening=False)
    for _ in range(8):
        game.step()
    game.check()
    other = QueryBuilder().register("t", DeltaTable(tmp_path / "t")).execute("select * from t").read_all()
    schema, rows = game.expected[max(game.expected)]
    result = pa.table(other)
    assert result.schema.names == schema.names
    assert sorted_reprs(result.cast(schema)) == rows


def test_deltalake_enforces_added_constraints(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.write(pa.table({"a": [1, 2], "b": ["x", "y"]}), path)
    alter = trilake.alter(path)
    alter.add_columns({"c": "double"}, first=True)
    alter.add_constraint("positive", "a > 0")
    alter.set_not_null("b")
    bad, good = ({"c": [0.5], "a": [a], "b": ["z"]} for a in (-3, 3))
    with pytest.raises(Exception, match="failed validation"):
        write_deltalake(path, pa.table(bad), mode="append")
    write_deltalake(path, pa.table(good), mode="append")
    alter.drop_constraint("positive")
    alter.drop_feature("checkConstraints")
    write_deltalake(path, pa.table(bad), mode="append")
    protocol = DeltaTable(path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert sorted(trilake.open(path).to_arrow().column("a").to_pylist()) == [-3, 1, 2, 3]
