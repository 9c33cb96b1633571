"""Operations on tables whose writers spell partition values differently, against an oracle that compares values."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pytest

import trilake
from tests.delta.spellings import VALUES, key, spell
from tests.delta.tables import add, lines, log_of, metadata, opened, parquet, table_of, write
from tests.fault_store import FaultStore
from trilake.delta.commands.optimize.optimize import AutoCompaction
from trilake.delta.commit.symlink_manifest import FOLDER, generate_manifests
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import State
from trilake.delta.protocol.schema import PrimitiveType, from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.delta.verify.log_files import state_differences
from trilake.errors import ConcurrentAppendError
from trilake.expr.terms.engine import query

Rows = list[tuple[int, Any]]


class World:
    """A table whose files spell their values at random, and its rows by value."""

    def __init__(self, type_: str, rng: random.Random) -> None:
        self.type, self.rng = type_, rng
        self.values = [*rng.sample(VALUES[type_], min(3, len(VALUES[type_]))), None]
        self.rows: Rows = [(n, rng.choice(self.values)) for n in range(rng.randint(3, 9))]
        self.schema = pa.schema([("n", pa.int64()), ("k", PrimitiveType(type_).arrow)])
        self.properties = {
            "delta.isolationLevel": "Serializable",
            "delta.compatibility.symlinkFormatManifest.enabled": rng.choice(["true", "false"]),
        }
        self.table = table_of(
            *(pa.table({"n": pa.array([n], pa.int64())}) for n, _ in self.rows),
            schema=self.schema,
            partition=["k"],
            fields=[{"partitionValues": self.spelled(v), "stats": '{"numRecords":1}'} for _, v in self.rows],
            configuration=self.properties,
        )
        self.store = self.table.log.store

    def spelled(self, value: Any) -> dict[str, str | None]:
        text = spell(self.type, value, self.rng)
        return {} if not text and self.rng.random() < 0.3 else {"k": text}

    def data(self, *rows: tuple[int, Any]) -> pa.Table:
        columns = [[n for n, _ in rows], [v for _, v in rows]]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)], schema=self.schema)

    def append_elsewhere(self, n: int, value: Any) -> None:
        """Append a row like another writer, at version 1."""
        data = parquet(pa.table({"n": pa.array([n], pa.int64())}))
        self.store.put(f"other{n}", data)
        action = add(f"other{n}", size=len(data), partitionValues=self.spelled(value), stats='{"numRecords":1}')
        info = {"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}
        self.store.put_if_absent(commit_key(1), lines([info, action]))

    def check(self, expected: Rows) -> int:
        """Check the current rows of the table and return the number of files."""
        rows = ArrowDeltaTable(self.store, standard_engine()).to_arrow().to_pylist()
        assert {r["n"]: key(r["k"]) for r in rows} == {n: key(v) for n, v in expected}
        manifests = [o.key for o in self.store.list(FOLDER)]
        if manifests:
            assert len(manifests) == len({key(v) for _, v in expected})
            assert sum(bytes(self.store.read(m)).count(b"\n") for m in manifests) == len(self.files())
        return len(self.files())

    def files(self) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = ArrowDeltaTable(self.store, standard_engine()).files().to_pylist()
        return files


def _in(rows: Rows, *values: Any) -> Rows:
    return [r for r in rows if key(r[1]) in set(map(key, values))]


def _outside(rows: Rows, *values: Any) -> Rows:
    return [r for r in rows if key(r[1]) not in set(map(key, values))]


def overwrite(world: World) -> None:
    new = [(100 + i, v) for i, v in enumerate(world.rng.sample(world.values, world.rng.randint(1, 2)))]
    trilake.write(world.data(*new), world.store.uri, mode="overwrite", partition_overwrite="dynamic")
    world.check([*_outside(world.rows, *(v for _, v in new)), *new])


def conflict(world: World) -> None:
    mine, other = world.rng.choice(world.values), world.rng.choice(world.values)
    done: list[int] = []

    def before(op: str, name: str) -> None:
        if op == "put_if_absent" and name == commit_key(1) and not done:
            done.append(1)
            world.append_elsewhere(50, other)

    log = DeltaLog(FaultStore(world.store, before=before), standard_engine())
    data = world.data((100, mine))
    if key(mine) == key(other):
        with pytest.raises(ConcurrentAppendError):
            write(log, data, "overwrite", partition_overwrite="dynamic")
        world.check([*world.rows, (50, other)])
    else:
        write(log, data, "overwrite", partition_overwrite="dynamic")
        world.check([*_outside(world.rows, mine), (50, other), (100, mine)])


def replace_where(world: World) -> None:
    value = world.rng.choice(world.values)
    log = DeltaLog(world.store, standard_engine())
    data = world.data((100, value))
    literal = "k IS NULL" if value is None else f"k = {_sql(world.type, value)}"
    write(log, data, "overwrite", replace_where=literal)
    world.check([*_outside(world.rows, value), (100, value)])


def _sql(type_: str, value: Any) -> str:
    if type_ == "binary":
        return f"X'{value.hex()}'"
    text = str(value).replace("'", "''")
    return f"CAST('{text}' AS {type_})"


def optimize(world: World) -> None:
    world.table.optimize()
    assert world.check(world.rows) == len({key(v) for _, v in world.rows})


def compact(world: World) -> None:
    value = world.rng.choice(world.values)
    least = len(_in(world.rows, value)) + 1
    engine = standard_engine(compaction=lambda _: AutoCompaction(enabled=True, min_files=max(2, least)))
    data = world.data((100, value))
    write(DeltaLog(world.store, engine), data)
    files = world.check([*world.rows, (100, value)])
    assert files == len(_outside(world.rows, value)) + 1


def manifests(world: World) -> None:
    made = generate_manifests(world.table.log)
    assert len(made.written) == len({key(v) for _, v in world.rows})
    world.check(world.rows)


def delete(world: World) -> None:
    gone = world.rng.choice(world.rows)[0]
    world.table.delete(f"n = {gone}")
    world.check([r for r in world.rows if r[0] != gone])


def update(world: World) -> None:
    changed = world.rng.choice(world.rows)
    world.table.update({"n": "n + 100"}, f"n = {changed[0]}")
    world.check([(n + 100, v) if n == changed[0] else (n, v) for n, v in world.rows])


def merge(world: World) -> None:
    other = world.rng.choice(world.values)
    moved = world.rng.choice(world.rows)[0]
    source = world.data((moved, other), (100, other))
    world.table.merge(source, "target.n = source.n").when_matched_update_all().when_not_matched_insert_all().execute()
    world.check([*((n, other if n == moved else v) for n, v in world.rows), (100, other)])


_OPERATIONS: list[Callable[[World], None]] = [
    overwrite, conflict, replace_where, optimize, compact, manifests, delete, update, merge,
]  # fmt: skip


def _run(type_: str, seed: int) -> None:
    rng = random.Random(f"{type_} {seed}")
    operation = _OPERATIONS[seed % len(_OPERATIONS)]
    try:
        operation(World(type_, rng))
    except BaseException as e:
        e.add_note(f"{operation.__name__} of a table partitioned by {type_}, seed {seed}")
        raise


@pytest.mark.parametrize("type_", VALUES)
def test_spellings_of_one_value_are_one_partition(type_: str) -> None:
    for seed in range(len(_OPERATIONS)):
        _run(type_, seed)


def test_verify_accepts_a_checkpoint_with_another_spelling() -> None:
    def state(string: str) -> State:
        schema = from_arrow(pa.schema([("n", pa.int64()), ("k", pa.float64())])).json()
        return log_of([metadata(schema, ["k"]), add("f", partitionValues={"k": string})]).snapshot().state

    assert state_differences(state("1E-7"), state("0.0000001"), query, whole=True) == []
    assert state_differences(state("1E-7"), state("0.000001"), query, whole=True) == [
        "partitionValues differ in 1 file"
    ]


# --- tables of other writers -----------------------------------------------------------------------------------------


def _partition(row: dict[str, Any], columns: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(key(row[c]) for c in columns)


def _counted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({k: key(v) for k, v in r.items()}) for r in rows)


def _overwrite_each_partition(place: str) -> None:
    """Overwrite one partition after the other, including partitions that were written before."""
    table = opened(place)
    columns = table.snapshot.metadata.partition_columns
    rows = table.to_arrow()
    left = rows.to_pylist()
    for number in range(0, rows.num_rows, max(1, rows.num_rows // 3)):
        row = rows.slice(number, 1)
        (new,) = row.to_pylist()
        trilake.write(row, place, mode="overwrite", partition_overwrite="dynamic")
        left = [new, *(r for r in left if _partition(r, columns) != _partition(new, columns))]
        assert _counted(trilake.open(place).to_arrow().to_pylist()) == _counted(left)
    trilake.write(rows, place, mode="append")
    trilake.open(place).optimize()
    files = trilake.open(place).files().num_rows
    assert files == len({_partition(r, columns) for r in left})
    assert _counted(trilake.open(place).to_arrow().to_pylist()) == _counted([*left, *rows.to_pylist()])


def _values_of_peers(type_: str) -> pa.Table:
    # deltalake cannot read negative decimals that it has written.
    values = [v for v in VALUES[type_] if not (isinstance(v, Decimal) and v < 0)] + [None]
    return pa.table({"n": pa.array(range(len(values)), pa.int64()), "k": pa.array(values, PrimitiveType(type_).arrow)})


@pytest.mark.parametrize("type_", VALUES)
def test_partitions_of_deltalake_are_overwritten(type_: str, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    deltalake.write_deltalake(place, _values_of_peers(type_), partition_by=["k"])
    _overwrite_each_partition(place)


@pytest.mark.parametrize("type_", ["string", "integer", "boolean", "double", "date", "timestamp", "timestamp_ntz"])
def test_partitions_of_polars_are_overwritten(type_: str, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    frame = polars.from_arrow(_values_of_peers(type_))
    assert isinstance(frame, polars.DataFrame)
    frame.write_delta(place, delta_write_options={"partition_by": ["k"]})
    _overwrite_each_partition(place)


@pytest.mark.parametrize("name", [
    "d-kernel-timestamp-partition-col-ISO8601", "dat-multi_partitioned", "dat-multi_partitioned_2",
    "dat-partitioned_with_null", "data-reader-partition-values", "data-reader-timestamp_ntz",
    "kernel-timestamp-int96", "kernel-timestamp-timestamp_millis", "rs-delta-0.8.0-null-partition",
    "rs-partition-type-primitives",
])  # fmt: skip
def test_partitions_of_delta_spark_are_overwritten(name: str, shared: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    shutil.copytree(shared / "corpus/delta/golden" / name / "delta", place)
    _overwrite_each_partition(place)


@pytest.mark.parametrize("name", [
    "binary", "date", "decimal", "double", "float", "int", "mixed", "timestamp", "timestamp_ntz",
])  # fmt: skip
def test_spellings_of_the_corpus_are_one_partition(name: str, shared: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    shutil.copytree(shared / "corpus/faults" / f"spelling_{name}", place)
    _overwrite_each_partition(place)


@pytest.mark.soak
@pytest.mark.parametrize("type_", VALUES)
def test_spellings_of_one_value_over_many_seeds(type_: str) -> None:
    for seed in range(1000, 3000):
        _run(type_, seed)
