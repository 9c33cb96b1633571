"""Data files of versions 2.x: Lance itself reads the files that trilake writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import lance.file
import numpy as np
import pyarrow as pa
import pytest

from tests.lance.v2.files import NULLS, column, differences, nulls, read, write, write_dataset
from trilake.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedProtocolError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.v2.writer import V2Writer
from trilake.storage import open_store

VERSIONS = ("2.0", "2.1", "2.2")
INT, TEXT = pa.int32(), pa.string()
TYPES: dict[str, pa.DataType] = {
    **{str(t): t for t in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64())},
    **{str(t): t for t in (pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null())},
    **{str(t): t for t in (TEXT, pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5), pa.binary(300))},
    **{str(t): t for t in (pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.duration("us"))},
    **{str(t): t for t in (pa.timestamp("s"), pa.timestamp("ns", "+02:00"), pa.decimal128(20, 3))},
    "decimal256": pa.decimal256(50, 0),
    "dictionary": pa.dictionary(pa.int8(), TEXT),
    "dictionary of numbers": pa.dictionary(pa.int32(), pa.int64()),
    "vector": pa.list_(pa.float32(), 4),
    "wide vector": pa.list_(pa.float32(), 100),
    "flags": pa.list_(pa.bool_(), 5),
    "list": pa.list_(INT),
    "large list": pa.large_list(TEXT),
    "lists": pa.list_(pa.list_(TEXT)),
    "three lists": pa.list_(pa.list_(pa.list_(INT))),
    "list of vectors": pa.list_(pa.list_(pa.float32(), 3)),
    "list of wide binaries": pa.list_(pa.binary(300)),
    "list of bools": pa.list_(pa.bool_()),
    "struct": pa.struct({"a": INT, "b": TEXT}),
    "structs": pa.struct({"a": pa.struct({"b": INT, "c": pa.struct({"d": TEXT})})}),
    "struct of list": pa.struct({"a": pa.list_(INT), "b": INT}),
    "list of struct": pa.list_(pa.struct({"a": INT, "b": TEXT})),
    "list of struct of list": pa.list_(pa.struct({"a": pa.list_(INT), "b": TEXT})),
    "struct of list of struct of list": pa.struct({"a": pa.list_(pa.struct({"b": pa.list_(TEXT)}))}),
    "list of dictionaries": pa.list_(pa.dictionary(pa.int8(), TEXT)),
    "vectors of vectors": pa.list_(pa.list_(pa.int16(), 2), 3),
}
#: Types that only some versions have.
LATER = {
    "map": pa.map_(TEXT, INT),
    "map to lists": pa.map_(INT, pa.struct({"a": pa.list_(TEXT)})),
    "list of maps": pa.list_(pa.map_(TEXT, INT)),
}
#: Types that pylance 14 reads only by themselves: it counts items of vectors as rows, and mixes up columns.
ALONE = {
    "empty struct": pa.struct([]),
    "vector of structs": pa.list_(pa.struct({"a": INT, "b": TEXT}), 3),
    "struct of vector of structs": pa.struct({"a": pa.list_(pa.struct({"b": pa.list_(INT, 2)}), 2)}),
}


def columns(version: str, rows: int, pattern: str) -> Iterator[tuple[str, pa.Array]]:
    """A column of each type that the version has."""
    for name, type in (TYPES | (LATER if version == "2.2" else {})).items():
        if version == "2.0" and "struct" in name:
            pattern = "none"
        yield name, column(type, rows, pattern)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pattern", NULLS)
def test_every_type_is_read_back(tmp_path: Path, version: str, pattern: str) -> None:
    for rows in (1, 7, 1500):
        table = pa.table(dict(columns(version, rows, pattern)))
        path, written = write(tmp_path, table, version)
        assert not list(differences(table, read(path)))
        assert (written.rows, written.version) == (rows, tuple(map(int, version.split("."))))
        assert lance.file.LanceFileReader(path).metadata().num_rows == rows


@pytest.mark.parametrize("version", VERSIONS)
def test_few_distinct_values_are_read_back(tmp_path: Path, version: str) -> None:
    few = {name: array.take(pa.array(np.arange(1500) % 7)) for name, array in columns(version, 7, "some")}
    assert not list(differences(pa.table(few), read(write(tmp_path, pa.table(few), version)[0])))


@pytest.mark.parametrize("pattern", NULLS)
@pytest.mark.parametrize("name", ALONE)
def test_separate_types_are_read_back(tmp_path: Path, pattern: str, name: str) -> None:
    for rows in (1, 7, 1500):
        table = pa.table({name: column(ALONE[name], rows, "none" if name == "empty struct" else pattern)})
        assert not list(differences(table, read(write(tmp_path, table)[0])))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lists", [[[], []], [None], [[], None, []]], ids=str)
def test_lists_without_items_are_read_back(tmp_path: Path, version: str, lists: list[Any]) -> None:
    structs = pa.struct([pa.field("a", INT), pa.field("b", TEXT), pa.field("c", pa.list_(INT, 2))])
    items = [pa.field("item", structs, nullable=False), pa.list_(TEXT), pa.float32(), pa.dictionary(pa.int8(), TEXT)]
    table = pa.table({str(n): pa.array(lists, pa.list_(item)) for n, item in enumerate(items)})
    assert not list(differences(table, read(write(tmp_path, table, version)[0])))


# --- datasets ---


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("rows", [4, 1500])
def test_fields_of_null_structs_are_null_alone(tmp_path: Path, version: str, rows: int) -> None:
    is_null = pa.array(np.arange(rows) % 3 == 1)
    leaves = {"i": column(INT, rows), "s": column(TEXT, rows), "v": column(pa.list_(INT, 2), rows)}
    leaves |= {"l": column(pa.list_(INT), rows), "few": column(TEXT, 1).take(pa.array(np.zeros(rows, int)))}
    inner = pa.StructArray.from_arrays(list(leaves.values()), list(leaves))
    outer = pa.StructArray.from_arrays([inner, leaves["i"]], ["n", "i"], mask=is_null)
    dataset = write_dataset(tmp_path, pa.table({"st": outer}), version)
    for name in ("i", "n", *(f"n.{leaf}" for leaf in leaves)):
        path = f"st.{name}"
        assert dataset.to_table({"x": path})["x"].is_null().combine_chunks() == is_null, name
        assert dataset.count_rows(f"{path} IS NULL") == sum(is_null.to_pylist()), name


@pytest.mark.parametrize("version", VERSIONS)
def test_lance_filters_appends_and_deletes(tmp_path: Path, version: str) -> None:
    table = pa.table({"id": pa.array(range(1500)), **dict(columns(version, 1500, "some"))})
    dataset = write_dataset(tmp_path, table, version, batch_rows=400, data_cache_bytes=1)
    rows = [0, 1, 399, 400, 777, 1499]
    assert not list(differences(table.take(rows), dataset.take(rows)))
    assert dataset.to_table(filter="id >= 1200 and id < 1203", columns=["id"])["id"].to_pylist() == [1200, 1201, 1202]
    dataset.insert(table.slice(0, 10))
    dataset.delete("id % 2 = 1")
    left = pa.concat_tables([table, table.slice(0, 10)])
    assert not list(differences(left.filter(pa.array(np.arange(1510) % 2 == 0)), dataset.to_table()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("batch_rows", [None, 3])
def test_blobs_are_read_back(tmp_path: Path, version: str, batch_rows: int | None) -> None:
    values = [b"abc", None, b"", b"d" * 70_000, b"e" * 80_000, b"f" * (5 << 20), b"g", None]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table([pa.array(values, field.type)], schema=pa.schema([field]))
    dataset = write_dataset(tmp_path, table, version, batch_rows=batch_rows)
    assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == values
    assert [blob.read() for blob in dataset.take_blobs("b", indices=[0, 4, 6])] == [b"abc", values[4], b"g"]
    side_files = len(list((tmp_path / "data" / "x").glob("*"))) if version == "2.2" else 0
    assert side_files == (2 if version == "2.2" else 0)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_in_structs_are_read_back(tmp_path: Path, version: str) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table({"s": pa.array([{"b": b"q"}, None, {"b": None}], pa.struct([blob]))})
    dataset = write_dataset(tmp_path, table, version)
    assert dataset.to_table(blob_handling="all_binary").to_pylist() == table.to_pylist()


def test_blobs_at_uris_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"outside")
    table = pa.table({"b": lance.blob_array([b"in", None, f"file://{tmp_path}/outside"])})
    dataset = write_dataset(tmp_path / "d", table)
    assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == [b"in", None, b"outside"]


# --- field metadata ---


def with_metadata(array: pa.Array, **metadata: str) -> pa.Table:
    keys = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in metadata.items()}
    return pa.table([array], schema=pa.schema([pa.field("a", array.type, metadata=keys)]))


PACKED = {
    "fixed": pa.struct({"a": pa.int8(), "b": pa.float64()}),
    "variable": pa.struct({"a": pa.int8(), "b": TEXT, "c": pa.large_binary()}),
    "vector": pa.struct({"a": pa.int8(), "b": pa.list_(pa.int16(), 3)}),
    "wide": pa.struct({"a": pa.binary(200), "b": pa.binary(100)}),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", PACKED)
def test_packed_structs_are_read_back(tmp_path: Path, version: str, name: str) -> None:
    kind = pa.struct([field.with_nullable(False) for field in PACKED[name]])
    for pattern in NULLS[:3] if version != "2.0" else ["none"]:
        table = with_metadata(column(kind, 700, pattern), packed="true")
        if (version, name) in (("2.0", "variable"), ("2.1", "variable"), ("2.1", "vector")):
            with pytest.raises(UnsupportedProtocolError, match=r"2\.2"):
                write(tmp_path, table, version)
        else:
            assert not list(differences(table, read(write(tmp_path, table, version)[0])))


@pytest.mark.parametrize("metadata", [{"a": "bool"}, {"a": "list"}])
def test_packed_structs_reject_unsupported_types(tmp_path: Path, metadata: dict[str, str]) -> None:
    kind = pa.bool_() if metadata["a"] == "bool" else pa.list_(INT)
    with pytest.raises(UnsupportedProtocolError, match="packed struct cannot contain type"):
        write(tmp_path, with_metadata(column(pa.struct({"a": kind}), 3), packed="true"))
    with pytest.raises(UnsupportedProtocolError, match="1 nulls"):
        write(tmp_path, with_metadata(pa.array([{"a": None}], pa.struct({"a": INT})), packed="true"))


ENCODINGS: list[dict[str, str]] = [
    {"compression": "zstd"},
    {"compression": "zstd", "compression_level": "9"},
    {"compression": "lz4"},
    {"compression": "fsst"},
    {"compression": "none"},
    {"compression": "zstd", "bss": "on"},
    {"structural_encoding": "fullzip"},
    {"structural_encoding": "miniblock"},
    {"structural_encoding": "fullzip", "compression": "zstd"},
    {"rle_threshold": "0.9"},
    {"rle_threshold": "0"},
    {"dict_divisor": "10"},
    {"dict_size_ratio": "1"},
    {"dict_values_compression": "zstd"},
    {"minichunk_size": "1024"},
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", ENCODINGS, ids=lambda m: " ".join(f"{k}={v}" for k, v in m.items()))
def test_field_metadata_selects_the_encoding(tmp_path: Path, version: str, metadata: dict[str, str]) -> None:
    rng = np.random.default_rng(1)
    words = np.array(["alpha", "beta", "gamma delta", ""])
    arrays = [
        pa.array(rng.integers(0, 1000, 6000)),
        pa.array(np.repeat(rng.integers(0, 9, 60), 100).astype("i4"), mask=nulls("some", 6000)),
        pa.array(np.round(rng.random(6000), 1)),
        pa.array(rng.choice(words, 6000), mask=nulls("some", 6000)),
        pa.array([f"user {i} of {i * 7919}" for i in range(6000)]),
        pa.array([b"%d" % i for i in range(6000)]),
        pa.array([["x" * (i % 5)] * (i % 4) for i in range(6000)], pa.list_(TEXT)),
        column(pa.list_(pa.float32(), 4), 600),
        column(pa.list_(pa.bool_(), 3), 600),
    ]
    for array in arrays:
        table = with_metadata(array, **metadata)
        assert not list(differences(table, read(write(tmp_path, table, version)[0])))


@pytest.mark.parametrize(
    ("key", "value"), [("compression", "brotli"), ("rle_threshold", "2"), ("bss", "maybe"), ("dict_divisor", "x")]
)
def test_invalid_field_metadata_is_named(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=value):
        write(tmp_path, with_metadata(pa.array([1]), **{key: value}))


# --- limits of versions ---


def test_null_structs_need_2_1(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedProtocolError, match=r"2\.1"):
        write(tmp_path, pa.table({"s": pa.array([None], pa.struct({"a": INT}))}), "2.0")


def test_error_leaves_no_file(tmp_path: Path) -> None:
    schema = LanceSchema.from_arrow(pa.schema({"a": INT}))
    with (
        pytest.raises(SchemaMismatchError, match="expected the columns a, got b"),
        V2Writer(open_store(str(tmp_path)), "x.lance", schema) as writer,
    ):
        writer.write(pa.record_batch({"b": pa.array([1], INT)}))
    assert not list(tmp_path.glob("*.lance"))


def test_metadata_and_global_buffers_are_read_back(tmp_path: Path) -> None:
    schema = LanceSchema.from_arrow(pa.schema({"a": INT}))
    with V2Writer(open_store(str(tmp_path)), "x.lance", schema) as writer:
        assert [writer.add_global_buffer(b"one"), writer.add_global_buffer(b"two")] == [1, 2]
        writer.add_metadata({b"key": b"value"})
    reader = lance.file.LanceFileReader(str(tmp_path / "x.lance"))
    assert reader.read_global_buffer(2) == b"two"
    assert reader.metadata().schema.metadata == {b"key": b"value"}


# --- without numba ---

_WRITE = """
import sys
from pathlib import Path
from typing import Any
import numpy as np
import pyarrow as pa
from tests.lance.v2.files import column, write
rng = np.random.default_rng(0)
ids = rng.integers(0, 1 << 60, 1100)
numbers = [ids, *((ids % 99).astype(kind) for kind in ("u1", "u2", "u4", "i8"))]
strings = [f"https://example.com/{i * 7919}/{i}" for i in range(1100)]
table = {
    **{str(each.dtype) + str(i): pa.array(each) for i, each in enumerate(numbers)},
    "few": pa.array(ids[np.arange(1100) % 9]),
    "runs": pa.array(np.repeat(ids[:11], 100)),
    "strings": pa.array(strings),
    "words": pa.array([f"w{i % 9}" for i in range(1100)]),
    "long": pa.array(["x" * (i % 300) + str(i) for i in range(1100)]),
    "lists": column(pa.list_(pa.struct({"a": pa.list_(pa.int32())})), 1100, "some"),
    "vectors": column(pa.list_(pa.float32(), 100), 100, "some").take(pa.array(np.arange(1100) % 100)),
}
write(Path(sys.argv[1]), pa.table(table))
"""


@pytest.mark.long
def test_files_without_numba_are_the_same(tmp_path: Path) -> None:
    for name, value in (("compiled", "1"), ("interpreted", "0")):
        environment = {**os.environ, "TRILAKE_NUMBA": value, "PYTHONWARNINGS": "error::RuntimeWarning"}
        subprocess.run([sys.executable, "-c", _WRITE, str(tmp_path / name)], env=environment, check=True)
    compiled, interpreted = ((tmp_path / name / "x.lance").read_bytes() for name in ("compiled", "interpreted"))
    assert compiled == interpreted
