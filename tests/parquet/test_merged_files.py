"""Small files read as one return the rows and errors of each, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.conftest import SOAK
from tests.delta.tables import parquet
from tests.mutations import mutated_parquet
from trilake.delta.scan import read
from trilake.delta.scan.read import read_positions, read_together
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan
from trilake.errors import CorruptFileError, MissingFileError, TrilakeError
from trilake.parquet.merged_files import FEWEST, merge_files
from trilake.storage.memory import MemoryStore

_SCHEMA = pa.schema(
    [
        pa.field("i", pa.int32()),
        pa.field("l", pa.list_(pa.int64())),
        pa.field("t", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("d", pa.decimal128(25, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("n", pa.struct([("x", pa.float64()), ("y", pa.binary())])),
    ]
)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"use_dictionary": False},
    {"compression": "zstd", "write_page_index": True},
    {"compression": "none", "data_page_version": "2.0", "write_page_checksum": True},
)


def rows(random: Random, count: int, nulls: Sequence[float] = (0.0, 0.3, 1.0)) -> pa.Table:
    def some(make: Any) -> list[Any]:
        share = random.choice(nulls)
        return [None if random.random() < share else make() for _ in range(count)]

    columns = [
        some(lambda: random.randrange(-5, 2**31)),
        some(lambda: [random.randrange(9)] * random.randrange(3)),
        some(lambda: random.choice(("a", "b", "x" * random.randrange(300)))),
        some(lambda: random.random() < 0.5),
        some(lambda: random.randrange(99)),
        some(lambda: random.randrange(2**50)),
        some(lambda: {"x": 0.5, "y": b"abcde"}),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


def file(random: Random, **options: Any) -> bytes:
    """A file with a random layout."""
    return parquet(rows(random, random.randrange(1, 30)), **{**random.choice(_OPTIONS), **options})


def like_files(random: Random, count: int) -> list[bytes]:
    """Files with the same layout."""
    return [parquet(rows(random, random.randrange(20, 40), (0.0,)), write_page_checksum=True) for _ in range(count)]


def table_plan(schema: pa.Schema = _SCHEMA, partition_by: Sequence[str] = ()) -> ReadPlan:
    uri = f"memory://merged-{Random().random()}"
    trilake.create(uri, schema, partition_by=list(partition_by) or None)
    table = trilake.open(uri)
    return plan_scan(table.log.snapshot()).plan  # type: ignore[attr-defined]


def stored(files: Sequence[bytes], values: Sequence[dict[str, str | None]] = ()) -> tuple[MemoryStore, list[FileTask]]:
    store, tasks = MemoryStore(f"memory://files-{Random().random()}"), []
    for n, data in enumerate(files):
        store.put(f"{n}.parquet", data)
        tasks.append(FileTask(f"{n}.parquet", len(data), values[n] if values else {}))
    return store, tasks


def alone(store: MemoryStore, tasks: Sequence[FileTask], plan: ReadPlan) -> pa.Table:
    return pa.Table.from_batches([b for t in tasks for _, b in read_positions(store, t, plan)])


def together(store: MemoryStore, tasks: Sequence[FileTask], plan: ReadPlan) -> pa.Table:
    return pa.Table.from_batches([some.rows for some in read_together(store, tasks, plan)])


def merged(files: Sequence[bytes]) -> list[tuple[int, int, bool]]:
    runs = list(merge_files([pa.py_buffer(data) for data in files]))
    assert [r.start for r in runs] == [0, *(r.stop for r in runs[:-1])]
    assert runs[-1].stop == len(files)
    return [(r.start, r.stop, r.merged is not None) for r in runs]


@pytest.mark.parametrize("seed", range(3 if SOAK else 1))
@pytest.mark.parametrize("alike", [True, False])
def test_files_with_one_schema_are_merged(alike: bool, seed: int) -> None:
    """Files with a rare layout are read alone."""
    random = Random(seed)
    files = like_files(random, 200) if alike else [file(random) for _ in range(200)]
    plan = table_plan()
    store, tasks = stored(files)
    runs = merged(files)
    assert runs == [(0, 200, True)] if alike else any(together for _, _, together in runs)
    assert together(store, tasks, plan).equals(alone(store, tasks, plan))
    narrow = replace(plan, fields=plan.fields[2:4], output=("t", "b"))
    assert together(store, tasks, narrow).equals(alone(store, tasks, narrow))


def test_merged_bytes_are_a_valid_parquet_file() -> None:
    random = Random(7)
    files = like_files(random, FEWEST)
    (run,) = merge_files([pa.py_buffer(data) for data in files])
    assert run.merged is not None
    one = pq.ParquetFile(pa.BufferReader(run.merged))
    assert one.num_row_groups == len(files)
    assert one.metadata.num_rows == run.rows
    for number, data in enumerate(files):
        assert one.read_row_group(number).equals(pq.read_table(pa.BufferReader(data)))


def test_files_with_other_layouts_are_not_merged() -> None:
    """Files with other columns, several row groups or none, and files that are not Parquet."""
    random = Random(3)
    like = like_files(random, 2 * FEWEST)
    other = parquet(rows(random, 5).drop_columns(["t"]))
    groups = parquet(rows(random, 9), row_group_size=4)
    empty = parquet(rows(random, 0))
    files = [*like[:FEWEST], other, groups, empty, *like[FEWEST:]]
    assert merged(files) == [(0, FEWEST, True), (FEWEST, FEWEST + 3, False), (FEWEST + 3, len(files), True)]
    store, tasks = stored(files)
    plan = table_plan()
    assert together(store, tasks, plan).equals(alone(store, tasks, plan))
    assert merged([b"", b"PAR1", *like[:20]]) == [(0, 22, False)]


def test_missing_column_is_null_and_narrow_type_is_widened() -> None:
    random = Random(4)
    files = [parquet(rows(random, 4).select(["i", "t"])) for _ in range(FEWEST)]
    plan = table_plan(pa.schema([("t", pa.string()), ("i", pa.int64()), ("new", pa.float64())]))
    store, tasks = stored(files)
    assert merged(files) == [(0, FEWEST, True)]
    result = together(store, tasks, plan)
    assert result.equals(alone(store, tasks, plan))
    assert result["new"].null_count == result.num_rows == 4 * FEWEST


def test_partition_values_come_from_each_file() -> None:
    random = Random(5)
    files = [file(random) for _ in range(2 * FEWEST + 3)]
    values = [{"p": str(min(n // FEWEST, 1)) if n < 2 * FEWEST else None} for n in range(len(files))]
    plan = table_plan(_SCHEMA.append(pa.field("p", pa.int32())), ["p"])
    store, tasks = stored(files, values)
    assert together(store, tasks, plan).equals(alone(store, tasks, plan))


def outcome(
    reader: Callable[[MemoryStore, Sequence[FileTask], ReadPlan], pa.Table], *arguments: Any
) -> list[Any] | tuple[type[TrilakeError], str]:
    try:
        return reader(*arguments).to_pylist()
    except TrilakeError as e:
        return type(e), str(e)


@pytest.mark.parametrize("seed", range(20 if SOAK else 8))
def test_damaged_files_fail_as_when_read_alone(seed: int) -> None:
    """The same rows, or the same error with the file name; nothing is read twice."""
    random = Random(seed)
    files = like_files(random, FEWEST + 20)
    for n in random.sample(range(len(files)), 2):
        files[n] = mutated_parquet(files[n], random)
    store, tasks = stored(files)
    plan = table_plan()
    assert outcome(together, store, tasks, plan) == outcome(alone, store, tasks, plan)


def test_rows_before_a_damaged_page_are_returned_once() -> None:
    random = Random(11)
    files = like_files(random, FEWEST + 9)
    damaged = bytearray(files[FEWEST])
    damaged[60:90] = bytes(30)
    files[FEWEST] = bytes(damaged)
    assert merged(files) == [(0, len(files), True)]
    store, tasks = stored(files)
    got = []
    with pytest.raises(CorruptFileError, match=f"{FEWEST}.parquet"):
        got.extend(some.rows for some in read_together(store, tasks, table_plan()))
    before = pa.Table.from_batches(got)
    assert before.equals(alone(store, tasks[:FEWEST], table_plan()))


def test_missing_file_is_named() -> None:
    random = Random(6)
    store, tasks = stored([file(random) for _ in range(FEWEST)])
    store.delete(["9.parquet"])
    with pytest.raises(MissingFileError, match=r"9\.parquet"):
        together(store, tasks, table_plan())


def test_file_larger_than_logged_is_not_read_whole() -> None:
    random = Random(8)
    files = [file(random) for _ in range(FEWEST)]
    store, tasks = stored(files)
    large = parquet(rows(random, 20_000))
    store.put("3.parquet", large)
    lengths: list[int] = []
    read_range = store.read_range

    def counted(key: str, start: int, length: int) -> pa.Buffer:
        lengths.append(length)
        return read_range(key, start, length)

    store.read_range = counted  # type: ignore[method-assign]
    plan = table_plan()
    assert together(store, tasks, plan).num_rows == alone(store, tasks, plan).num_rows
    assert max(lengths[:FEWEST]) < 100_000 < len(large)


def test_wide_rows_are_read_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_MERGED_BATCH", 100_000)
    files = [parquet(pa.table({"t": ["x" * 10_000] * 3})) for _ in range(FEWEST)]
    store, tasks = stored(files)
    plan = table_plan(pa.schema([("t", pa.string())]))
    batches = [some.rows for some in read_together(store, tasks, plan)]
    assert sum(b.num_rows for b in batches) == 3 * FEWEST
    assert max(b.nbytes for b in batches) < 400_000
