"""Encodings requested by field metadata, and columns of several pages."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import lance
import lance.file
import numpy as np
import pyarrow as pa
import pytest

from tests.lance.v2.columns import column
from tests.lance.v2.conftest import Written
from tests.lance.v2.test_columns import check, same
from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.v2.file import V2File
from trilake.lance.v2.values import Nothing
from trilake.lance.v2.writer import V2Writer
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

ENCODING = "lance-encoding:"
METADATA: list[dict[str, str]] = [
    {"compression": "zstd"},
    {"compression": "lz4"},
    {"compression": "fsst"},
    {"compression": "none"},
    {"bss": "on", "compression": "lz4"},
    {"structural-encoding": "fullzip"},
    {"structural-encoding": "miniblock"},
    {"rle-threshold": "0.9"},
    {"minichunk-size": "1024"},
    {"dict-divisor": "1", "dict-size-ratio": "0.99", "dict-values-compression": "lz4"},
    {"structural-encoding": "fullzip", "compression": "zstd"},
    {"structural-encoding": "fullzip", "compression": "lz4"},
]
NAMES = (
    *(
        "small32",
        "float32",
        "float64",
        "bool",
        "string",
        "string few",
        "string 900",
        "string long",
        "runs",
        "runs short",
    ),
    *("binary", "list", "list strings", "vector4", "vector null items", "decimal128", "fsb40"),
)
ALL = [
    (version, name, nulls, metadata)
    for version in ("2.0", "2.1", "2.2", "2.3")
    for metadata in METADATA
    for name in NAMES
    for nulls in ("none", "some")
]
Case = tuple[str, str, str, dict[str, str]]


def run(written: Written, case: Case) -> None:
    version, name, nulls, metadata = case
    array = column(name, 5000, nulls)
    field = pa.field("c", array.type, metadata={ENCODING + key: value for key, value in metadata.items()})
    check(*written(pa.table([array], schema=pa.schema([field])), version))


@pytest.mark.parametrize("case", random.Random(2).sample(ALL, 40), ids=str)
def test_requested_encodings_are_read(written: Written, case: Case) -> None:
    run(written, case)


@pytest.mark.soak
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_all_requested_encodings_are_read(written: Written, version: str) -> None:
    for case in ALL:
        if case[0] == version:
            run(written, case)


def packed(fields: Mapping[str, pa.Array], nulls: bool) -> pa.Table:
    columns = list(fields.values())
    mask = pa.array(np.arange(len(columns[0])) % 5 == 3) if nulls else None
    rows = pa.StructArray.from_arrays(columns, list(fields), mask=mask)
    schema = pa.schema([pa.field("c", rows.type, metadata={ENCODING + "packed": "true"})])
    return pa.table([rows], schema=schema)


@pytest.mark.parametrize("rows", [7, 3000])
@pytest.mark.parametrize(
    ("version", "names", "nulls"),
    [
        ("2.0", ["int32", "float64", "int8", "vector4"], False),
        ("2.1", ["int32", "float64", "int8"], True),
        ("2.2", ["int32", "float64", "int8"], True),
        ("2.2", ["int16", "vector4"], True),
        ("2.2", ["int16", "string"], True),
        ("2.2", ["large_string long", "vector128", "binary"], True),
    ],
    ids=str,
)
def test_packed_structs_are_read(written: Written, version: str, names: list[str], nulls: bool, rows: int) -> None:
    check(*written(packed({name: column(name, rows, "none") for name in names}, nulls), version))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize(
    "arrow", [pa.list_(pa.float32(), 4), pa.list_(pa.bool_(), 3), pa.list_(pa.list_(pa.int16(), 2), 3)], ids=str
)
def test_vectors_whose_items_are_all_null_are_read(written: Written, version: str, arrow: pa.DataType) -> None:
    vectors = [None if row % 3 == 1 and version != "2.0" else [None] * arrow.list_size for row in range(50)]
    check(
        *written(
            pa.table({"c": pa.array(vectors, arrow), "d": pa.array([[v] for v in vectors], pa.list_(arrow))}), version
        )
    )


def test_rows_of_vectors_with_null_items_are_not_null() -> None:
    """Full-zip pages of pylance 0.38 to 11 have levels but no values for them."""
    validity = pa.py_buffer(b"\x05")
    vectors = Nothing(3).arrow(pa.list_(pa.bool_(), 2), validity)
    assert vectors.to_pylist() == [[None, None], None, [None, None]]


@pytest.mark.parametrize(("version", "names"), [("2.0", ["int32", "int8"]), ("2.2", ["int16", "string", "vector4"])])
def test_fields_of_packed_structs_are_projected(written: Written, version: str, names: list[str]) -> None:
    file, expected = written(packed({name: column(name, 50, "none") for name in names}, version == "2.2"), version)
    got = file.read_rows(1, 20, file.schema.project([f"c.{names[1]}"]))
    rows = [row and {names[1]: row[names[1]]} for row in expected["c"].to_pylist()]
    assert got["c"].to_pylist() == rows[1:20]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_columns_of_several_pages_are_read(tmp_path: Path, version: str) -> None:
    """Pages that differ in nulls, and so in layers and encodings."""
    names = ["int64", "string", "list null items", "vector128", "string long", "bool", "string few"]
    path = tmp_path / "pages.lance"
    from lance.file import LanceFileReader, LanceFileWriter

    parts = [
        pa.table({name: column(name, 2000, nulls, seed) for name in names})
        for seed, nulls in enumerate(["none", "some", "all", "none", "one"])
    ]
    with LanceFileWriter(str(path), parts[0].schema, version=version, max_page_bytes=20_000, data_cache_bytes=1) as w:
        for part in parts:
            for batch in part.to_batches(max_chunksize=700):
                w.write_batch(batch)
    file = V2File.open(open_store(str(tmp_path)), path.name)
    assert len(file.container.column(0).pages) > 1
    check(file, LanceFileReader(str(path)).read_all().to_table())


@pytest.mark.parametrize("name", ["int64", "list", "string"])
def test_pages_of_one_layout_are_read_together(name: str) -> None:
    """They are read as one page, and only pages with requested rows are fetched."""
    store = Counting("memory://v2-pages")
    table = pa.table({"c": pa.concat_arrays([column(name, 3000, "some", seed) for seed in range(4)])})
    writer = V2Writer(store, "f", LanceSchema.from_arrow(table.schema), max_page_bytes=4000, data_cache_bytes=1)
    for batch in table.to_batches(max_chunksize=1000):
        writer.write(batch)
    writer.close()
    file = V2File.open(store, "f")
    assert len(file.container.column(0).pages) > 4
    for rows in ([11_990], [6_000, 17], [11_991, 5_999, 6_001, 1], list(range(0, 12_000, 7))):
        same(file.take(rows), table.take(rows), rows[:4])
    for start, stop in ((5_000, 5_001), (2_999, 9_001), (0, 12_000)):
        same(pa.Table.from_batches([file.read_rows(start, stop)]), table.slice(start, stop - start), start)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_columns_and_fields_of_structs_are_projected(written: Written, version: str) -> None:
    struct = pa.StructArray.from_arrays([column("int32", 50, "some"), column("string", 50, "some")], ["x", "y"])
    table = pa.table({"a": column("int64", 50, "some"), "s": struct, "l": column("list", 50, "some")})
    file, expected = written(table, version)
    batch = file.read_rows(3, 9, file.schema.project(["l", "a"]))
    same(pa.Table.from_batches([batch]), expected.select(["l", "a"]).slice(3, 6), "columns")
    got = file.take([4, 1], file.schema.project(["s.y"]))
    assert got.to_pylist() == [{"s": {"y": expected["s"][i]["y"].as_py()}} for i in (4, 1)]
    assert file.read_rows(2, 5, file.schema.project([])).num_rows == 3


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_file_in_a_store_is_read_with_few_requests(tmp_path: Path, version: str) -> None:
    table = pa.table({name: column(name, 60_000, "some") for name in ("int64", "string", "list", "float64")})
    lance.write_dataset(table, tmp_path / "ds", data_storage_version=version)
    (path,) = (tmp_path / "ds" / "data").iterdir()
    store = Counting("memory://v2")
    store.put("f", path.read_bytes())
    file = V2File.open(store, "f")
    assert store.rounds == 1
    same(pa.Table.from_batches([file.read_rows(0, 60_000)]), table, "all")
    assert store.rounds <= 4
    before, store.bytes = store.rounds, 0
    same(file.take([59_000, 17]), table.take([59_000, 17]), "take")
    assert store.rounds <= before + 3
    assert store.bytes < file.size / 10


def test_pages_of_another_version_are_rejected(tmp_path: Path) -> None:
    """Drafts of 2.1 had that version number, and pages as in 2.0."""
    for version, number in (("2.0", (2, 1)), ("2.1", (0, 3))):
        path = tmp_path / f"{version}.lance"
        lance.write_dataset(pa.table({"a": [1, 2]}), path, data_storage_version=version)
        (file,) = (path / "data").iterdir()
        data = file.read_bytes()
        store = MemoryStore("memory://drafts")
        store.put("f", data[:-8] + number[0].to_bytes(2, "little") + number[1].to_bytes(2, "little") + b"LANC")
        with pytest.raises(UnsupportedProtocolError, match="prerelease"):
            V2File.open(store, "f").read_rows(0, 2)


class Counting(MemoryStore):
    """Counts the rounds of requests, and the bytes read."""

    rounds = bytes = 0

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        self.rounds += 1
        self.bytes += length
        return super().read_range(key, start, length)

    def read_ranges(self, key: str, ranges: list[tuple[int, int]]) -> list[pa.Buffer]:  # type: ignore[override]
        before = self.rounds
        result = super().read_ranges(key, ranges)
        self.rounds = before + 1
        return result


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_lists_of_bytes_are_read_as_strings(tmp_path: Path, arrow: pa.DataType) -> None:
    """As pylance 0.13 wrote them in 2.0; its manifests do not name the columns of the bytes."""
    values, numbers = [b"ab", b"", None, b"c\xc3\xa4", *([b"d"] * 400)], range(404)
    lists = pa.array([None if v is None else list(v) for v in values], pa.list_(pa.uint8()))
    schema = pa.schema({"s": lists.type, "n": pa.int64()})
    with lance.file.LanceFileWriter(str(tmp_path / "f"), schema, version="2.0", data_cache_bytes=1) as writer:
        for part in pa.table([lists, numbers], schema=schema).to_batches(max_chunksize=100):
            writer.write_batch(part)
    expected = pa.table({"s": pa.array(values, pa.binary()).cast(arrow), "n": numbers})
    file = V2File.open(
        open_store(str(tmp_path)), "f", LanceSchema.from_arrow(expected.schema), field_ids=[0, 1], column_indices=[0, 2]
    )
    assert pa.Table.from_batches([file.read_rows(0, 404)]) == expected
    for rows in [0, 1, 3], [2], [403, 5, 0], [1]:
        assert file.take(rows) == expected.take(rows)
