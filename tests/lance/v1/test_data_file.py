"""Data files: round trips by batch and by row, here and through Lance itself; damage is an error."""

from __future__ import annotations

import decimal
import shutil
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake.errors import (
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    TrilakeError,
    UnsupportedProtocolError,
)
from trilake.lance.file import framing
from trilake.lance.file.schema import LanceSchema
from trilake.lance.proto import format_pb2
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.data_file_writer import V1Writer
from trilake.lance.v1.dictionaries import encode_dictionaries
from trilake.storage import Store, open_store
from trilake.storage.memory import MemoryStore

KEY = "data/a.lance"
N = 50


def random_strings() -> list[str | None]:
    return [None if i % 7 == 3 else "é" * (i % 5) + str(i) for i in range(N)]


def every_type() -> pa.Table:
    """A column of each type, with values that the format preserves."""
    rng = np.random.default_rng(0)
    counted = pa.array(range(N), pa.int64())
    numbers = {str(t): pa.array(range(N), t) for t in (pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.uint64())}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N * 4).astype("f4")), 4)
    flags = pa.FixedSizeListArray.from_arrays(pa.array([i % 2 == 0 for i in range(N * 3)]), 3)
    pairs = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    deep = pa.struct([("x", pa.int16()), ("y", pa.struct([("z", pa.list_(pa.int8()))]))])
    words = pa.array([f"v{i % 5}" for i in range(N)])
    return pa.table(
        {
            **numbers,
            "half": pa.array(np.arange(N, dtype=np.float16)),
            "double": pa.array(rng.random(N)),
            "bool": pa.array([i % 3 == 0 for i in range(N)]),
            "string": pa.array(random_strings()),
            "large": pa.array(random_strings(), pa.large_string()),
            "binary": pa.array([bytes([255]) * (i + 1) for i in range(N)]),
            "day": pa.array(range(N), pa.int32()).cast(pa.date32()),
            "date64": pa.array([i * 86_400_000 for i in range(N)], pa.int64()).cast(pa.date64()),
            "time32": pa.array(range(N), pa.int32()).cast(pa.time32("ms")),
            "time64": counted.cast(pa.time64("us")),
            "stamp": counted.cast(pa.timestamp("ns", "UTC")),
            "duration": counted.cast(pa.duration("s")),
            "dec": pa.array([decimal.Decimal(i) / 4 for i in range(N)], pa.decimal128(20, 2)),
            "dec256": pa.array([decimal.Decimal(-i) / 4 for i in range(N)], pa.decimal256(40, 2)),
            "fsb": pa.array([b"%03d" % i for i in range(N)], pa.binary(3)),
            "vector": vectors,
            "flags": flags,
            "list": pa.array([list(range(i % 4)) for i in range(N)], pa.list_(pa.int32())),
            "bools": pa.array([[True, False][: i % 3] for i in range(N)], pa.list_(pa.bool_())),
            "lists": pa.array(
                [[["a"] * j for j in range(i % 3)] for i in range(N)], pa.large_list(pa.list_(pa.string()))
            ),
            "pairs": pa.array([[{"a": j, "b": f"q{j}"} for j in range(i % 3)] for i in range(N)], pairs),
            "struct": pa.array([{"x": i, "y": {"z": [i] * (i % 2)}} for i in range(N)], deep),
            "dict": words.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            "null": pa.nulls(N),
        },
        metadata={"k": "v"},
    )


def write(store: Store, batches: Sequence[pa.RecordBatch], schema: pa.Schema, key: str = KEY) -> LanceSchema:
    lance_schema = LanceSchema.from_arrow(schema)
    with V1Writer(store, key, lance_schema) as writer:
        for batch in batches:
            writer.write(batch)
    return lance_schema.with_dictionaries(writer.dictionaries)


def write_dataset(folder: Path, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
    """A dataset of one file with a minimal manifest."""
    store = open_store(str(folder))
    found = write(store, batches, schema)
    data, places = encode_dictionaries(found)
    manifest = format_pb2.Manifest(fields=found.to_proto(places), version=1, metadata=found.metadata_to_proto())
    fragment = manifest.fragments.add(id=0, physical_rows=sum(b.num_rows for b in batches))
    fragment.files.add(path="a.lance", fields=found.field_ids)
    store.put("_versions/1.manifest", bytes(data) + framing.frame(manifest) + framing.footer(len(data)))


def read(file: V1File, columns: Any = None) -> pa.Table:
    batches = [file.read_batch(i, columns) for i in range(file.num_batches)]
    return pa.Table.from_batches(batches, None if batches else file.schema.to_arrow())


def same(a: pa.Table, b: pa.Table) -> bool:
    return a.schema.equals(b.schema) and repr(a.to_pylist()) == repr(b.to_pylist())


@pytest.fixture(params=["mapped", "ranges"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store with mapped files, and one with range reads only."""
    return open_store(str(tmp_path)) if request.param == "mapped" else MemoryStore(f"memory://{tmp_path.name}")


@pytest.mark.parametrize("skip", [0, 3])
def test_every_type_round_trips(store: Store, skip: int) -> None:
    table = every_type().slice(skip)
    schema = write(store, table.to_batches(max_chunksize=17), table.schema)
    file = V1File.open(store, KEY, schema)
    found = read(file)
    found.validate(full=True)
    assert same(found, table)
    assert same(read(V1File.open(store, KEY)), table)  # with the schema in the file
    part = file.read_batch(1, rows=slice(3, 9))
    part.validate(full=True)
    assert part.to_pylist() == table.slice(20, 6).to_pylist()
    rows = np.random.default_rng(1).integers(0, file.num_rows, 40)
    taken = file.take(rows)
    taken.validate(full=True)
    assert same(taken, table.take(rows))


def test_projections(store: Store) -> None:
    table = every_type()
    schema = write(store, table.to_batches(max_chunksize=17), table.schema)
    file = V1File.open(store, KEY, schema)
    cut = schema.project(["struct.y.z", "pairs.b", "string"])
    assert same(file.take([40, 2], cut), read(file, cut).take([40, 2]))
    assert read(file, cut)["pairs"].to_pylist()[2] == [{"b": "q0"}, {"b": "q1"}]
    assert read(file, cut)["struct"].to_pylist()[1] == {"y": {"z": [1]}}
    assert file.read_batch(0, LanceSchema(())).num_rows == 17
    assert read(file, schema.project(["string"])).column_names == ["string"]


def test_file_with_some_of_the_columns(store: Store) -> None:
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int8(), "b": pa.int8(), "c": pa.string()}))
    part = schema.project(["b", "c"])
    with V1Writer(store, KEY, part) as writer:
        writer.write(pa.record_batch({"b": pa.array([1], pa.int8()), "c": pa.array(["x"])}))
    file = V1File.open(store, KEY, schema, [1, 2])
    assert file.read_batch(0, schema.project(["c", "a"])).to_pydict() == {"c": ["x"]}
    assert file.take([0, 0]).to_pydict() == {"b": [1, 1], "c": ["x", "x"]}


@pytest.mark.parametrize("first", ["b", "s"])
def test_page_tables_that_start_at_field_0(store: Store, first: str) -> None:
    """As pylance before 0.8 wrote them, in files of added columns."""
    types = {"a": pa.int8(), "b": pa.int8(), "s": pa.struct({"x": pa.int8(), "y": pa.int8()}), "c": pa.int8()}
    schema = LanceSchema.from_arrow(pa.schema(types))
    part = schema.project([first, "c"])
    table = pa.table({first: pa.array([1, 2] if first == "b" else [{"x": 3, "y": 4}] * 2, types[first]), "c": [5, 6]})
    with V1Writer(store, KEY, part) as writer:
        for batch in table.cast(part.to_arrow()).to_batches(max_chunksize=1):
            writer.write(batch)
    data, lowest, batches = bytes(store.read(KEY)), min(part.field_ids), 2
    (position,) = struct.unpack_from("<q", data, len(data) - 16)
    metadata = framing.parse(data[position + 4 : -16], format_pb2.Metadata, file=KEY, damaged=CorruptFileError)
    pages = data[metadata.page_table_position :][: 16 * batches * (max(part.field_ids) - lowest + 1)]
    metadata.page_table_position = len(data)
    data += bytes(16 * batches * lowest) + pages
    store.put("data/older.lance", data + framing.frame(metadata) + framing.footer(len(data)))
    older = V1File.open(store, "data/older.lance", schema, part.field_ids)
    assert read(older).to_pylist() == table.to_pylist()
    assert read(older, schema.project(["c"]))["c"].to_pylist() == [5, 6]


def test_lance_reads_written_files(tmp_path: Path) -> None:
    table = every_type()
    write_dataset(tmp_path, table.to_batches(max_chunksize=17), table.schema)
    dataset = lance.dataset(str(tmp_path))
    assert dataset.schema.equals(table.schema)
    assert dataset.to_table().to_pylist() == table.to_pylist()
    dataset = lance.dataset(str(tmp_path))
    # With trilake's statistics.
    assert (
        dataset.to_table(["string"], filter="double < 2 and int8 = 33")["string"].to_pylist()
        == table["string"][33:34].to_pylist()
    )
    assert dataset.count_rows("string = 'é36'") == 1


def test_files_written_by_lance_are_read(tmp_path: Path) -> None:
    table = every_type().drop(["null"])
    options: dict[str, Any] = {"data_storage_version": "legacy", "enable_v2_manifest_paths": False}
    lance.write_dataset(table, tmp_path / "ds", max_rows_per_group=17, **options)
    (path,) = (tmp_path / "ds" / "data").iterdir()
    file = V1File.open(open_store(str(tmp_path / "ds")), f"data/{path.name}")
    assert same(read(file), table)
    assert file.batch_offsets.tolist() == [0, 17, 34, 50]


def test_one_dictionary_for_all_batches(store: Store) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"d": pa.array(words).dictionary_encode().cast(kind)})
        for words in (["b", "a"], ["c", "a", "a"], ["b", "c"])
    ]
    schema = write(store, batches, pa.schema({"d": kind}))
    assert schema.dictionaries[0].to_pylist() == ["b", "a", "c"]
    assert read(V1File.open(store, KEY, schema))["d"].to_pylist() == ["b", "a", "c", "a", "a", "b", "c"]
    with pytest.raises(SchemaMismatchError), V1Writer(store, "x", schema, extend_dictionaries=False) as writer:
        writer.write(pa.record_batch({"d": pa.array(["new"]).dictionary_encode().cast(kind)}))
    assert [m.key for m in store.list()] == [KEY]


def test_dictionary_with_too_many_values_is_rejected(store: Store) -> None:
    words = pa.array([str(i) for i in range(200)]).dictionary_encode()
    kind = pa.dictionary(pa.int8(), pa.string())
    halves = [words.slice(0, 100), pa.array([str(i) for i in range(100, 200)]).dictionary_encode()]
    batches = [pa.record_batch({"d": pa.array(h.to_pylist()).dictionary_encode().cast(kind)}) for h in halves]
    with pytest.raises(InvalidArgumentError, match="distinct values"):
        write(store, batches, pa.schema({"d": kind}))


def test_nulls_are_read_as_lance_reads_them(store: Store) -> None:
    table = pa.table(
        {
            "i": pa.array([None, 1], pa.int32()),
            "b": pa.array([None, True]),
            "l": pa.array([None, [1]], pa.list_(pa.int8())),
            "v": pa.array([None, [1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "s": pa.array([None, {"x": 1, "t": "a"}], pa.struct([("x", pa.int8()), ("t", pa.string())])),
            "t": pa.array(["", "x"]),
        }
    )
    file = V1File.open(store, KEY, write(store, table.to_batches(), table.schema))
    assert read(file).to_pylist()[0] == {
        "i": 0, "b": False, "l": [], "v": [0.0, 0.0], "s": {"x": 0, "t": None}, "t": None,
    }  # fmt: skip
    assert read(file).slice(1).equals(table.slice(1))


def test_values_under_nulls_are_not_written(store: Store) -> None:
    values = pa.array([7, 8, 9], pa.int64())
    hidden = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), values.buffers()[1]])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), values, mask=pa.array([False, True, False]))
    table = pa.table({"i": hidden, "l": lists})
    file = V1File.open(store, KEY, write(store, table.to_batches(), table.schema))
    assert read(file).to_pydict() == {"i": [7, 0, 9], "l": [[7], [], [9]]}


def test_other_columns_are_rejected(store: Store) -> None:
    with V1Writer(store, KEY, LanceSchema.from_arrow(pa.schema({"a": pa.int8()}))) as writer:
        for wrong in ({"b": pa.array([1], pa.int8())}, {"a": pa.array([1], pa.int16())}):
            with pytest.raises(SchemaMismatchError):
                writer.write(pa.record_batch(wrong))
    assert V1File.open(store, KEY).num_rows == 0


def test_missing_rows_are_rejected(store: Store) -> None:
    schema = write(store, [pa.record_batch({"a": [1, 2]})], pa.schema({"a": pa.int64()}))
    file = V1File.open(store, KEY, schema)
    for rows in ([2], [-1]):
        with pytest.raises(InvalidArgumentError):
            file.take(rows)
    with pytest.raises(InvalidArgumentError):
        file.read_batch(1)
    assert file.take([]).num_rows == 0
    with pytest.raises(MissingFileError):
        V1File.open(store, "data/none.lance", schema)


def test_version_2_file_is_rejected(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "ds", data_storage_version="2.0")
    (path,) = (tmp_path / "ds" / "data").iterdir()
    with pytest.raises(UnsupportedProtocolError, match="version"):
        V1File.open(open_store(str(tmp_path / "ds")), f"data/{path.name}")


class Counting(MemoryStore):
    """Counts reads."""

    calls = 0

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        self.calls += 1
        return super().read_range(key, start, length)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        before = self.calls
        found = super().read_ranges(key, ranges)
        self.calls = before + 1  # one request to the store
        return found


def test_few_requests_to_a_store() -> None:
    store = Counting("memory://counted")
    table = every_type().drop(["lists", "pairs", "struct"])
    schema = write(store, table.to_batches(max_chunksize=17), table.schema)
    file = V1File.open(store, KEY, schema)
    assert store.calls == 1
    file.read_batch(1)
    assert store.calls == 2
    file.take([1, 20, 49])
    assert store.calls == 2  # the tail that was fetched first contains all of them


# --- properties -------------------------------------------------------------------------------------------------------

LEAVES = st.sampled_from([pa.int8(), pa.int64(), pa.float32(), pa.bool_(), pa.string(), pa.binary(), pa.binary(3)])
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: pa.struct([(f"f{i}", t) for i, t in enumerate(ts)])),
    ),
    max_leaves=4,
)


def value(draw: Any, t: pa.DataType) -> Any:
    """A value that the format preserves: no nulls, and no empty strings, which it reads as nulls."""
    if pa.types.is_struct(t):
        return {f.name: value(draw, f.type) for f in t}
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [value(draw, t.value_type) for _ in range(draw(st.integers(0, 3)))]
    strategies: dict[pa.DataType, Any] = {
        pa.int8(): st.integers(-128, 127),
        pa.int64(): st.integers(-(2**63), 2**63 - 1),
        pa.float32(): st.floats(width=32, allow_nan=False),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(min_size=1, max_size=5),
        pa.binary(): st.binary(min_size=1, max_size=5),
        pa.binary(3): st.binary(min_size=3, max_size=3),
    }
    return draw(strategies[t])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_round_trip(data: Any) -> None:
    kinds = data.draw(st.lists(TYPES, min_size=1, max_size=3))
    rows = data.draw(st.integers(1, 8))
    table = pa.table(
        [pa.array([value(data.draw, t) for _ in range(rows)], t) for t in kinds],
        names=[f"c{i}" for i in range(len(kinds))],
    )
    store = MemoryStore("memory://property")
    schema = write(store, table.to_batches(max_chunksize=data.draw(st.integers(1, 8))), table.schema)
    file = V1File.open(store, KEY, schema)
    assert same(read(file), table)
    indices = data.draw(st.lists(st.integers(0, rows - 1), max_size=6))
    taken = file.take(indices)
    taken.validate(full=True)
    assert same(taken, table.take(pa.array(indices, pa.int64())))


# --- hostile files ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    table = every_type().slice(0, 9)
    folder = tmp_path_factory.mktemp("sample")
    store = open_store(str(folder))
    write(store, table.to_batches(max_chunksize=5), table.schema)
    return (folder / KEY).read_bytes()


def use(data: bytes) -> None:
    """Read everything in a file; errors must be trilake's, and arrays valid, with arbitrary values."""

    def check(found: pa.RecordBatch | pa.Table) -> None:
        found.validate()
        for column in found.columns:
            column.validate(full=not (pa.types.is_decimal(column.type) or pa.types.is_temporal(column.type)))

    store = MemoryStore("memory://hostile")
    store.put(KEY, data)
    with suppress(TrilakeError):
        file = V1File.open(store, KEY)
        for i in range(min(file.num_batches, 20)):
            check(file.read_batch(i))
        joined = file.read_joined(0, min(file.num_batches, 20), file.schema)
        if joined is not None:
            check(joined)
        if file.num_rows:
            check(file.take([0, file.num_rows - 1]))
        file.statistics()


def test_every_truncation_is_an_error(sample: bytes) -> None:
    for size in range(0, len(sample), 23):
        store = MemoryStore("memory://cut")
        store.put(KEY, sample[:size])
        with pytest.raises(CorruptFileError):
            V1File.open(store, KEY)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_mutated_files_raise_typed_errors(sample: bytes, data: Any) -> None:
    broken = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(broken) - 9))
        broken[at : at + 8] = data.draw(
            st.one_of(
                st.binary(min_size=8, max_size=8), st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f"])
            )
        )
    use(bytes(broken))


@pytest.mark.parametrize("name", ["strings", "lists", "list_struct", "structs", "dictionary"])
def test_mutated_files_of_lance_raise_typed_errors(shared: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(shared / "corpus" / "lance" / name / "ds.lance" / "data", tmp_path / "data")
    rng = np.random.default_rng(2)
    for path in (tmp_path / "data").iterdir():
        original = path.read_bytes()
        for _ in range(60):
            broken = bytearray(original)
            for at in rng.integers(0, len(broken), 3):
                broken[at] = rng.integers(0, 256)
            use(bytes(broken))
