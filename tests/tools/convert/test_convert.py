"""``trilake.convert``: every pair of formats, and what each conversion preserves."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trilake
from tests.tools.convert.conversions import FORMATS, ROWS, UTC, make, read, same_rows
from trilake.errors import ChecksumMismatchError, InvalidArgumentError, TableExistsError, UnknownOptionError
from trilake.storage import open_store
from trilake.table.checksum import checksum
from trilake.tools.convert.run import open_source

PAIRS = [(a, b) for a in FORMATS for b in FORMATS]


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_every_pair_keeps_rows_and_schema(tmp_path: Path, start: str, end: str) -> None:
    source = make(ROWS, start, str(tmp_path / "from"))
    target = str(tmp_path / "to")
    done = trilake.convert(source, target, format=end, options={"nulls": "mask"} if end == "lance" else None)
    assert (done.rows, done.source_format, done.format, done.verified) == (4, start, end, True)
    assert done.files == 1
    assert done.bytes > 0
    assert done.version == {"delta": 0, "lance": 1}.get(end)
    back = read(target)
    assert done.checksum == checksum(ROWS) == checksum(back)
    assert same_rows(back, ROWS)
    assert back.column_names == ROWS.column_names
    for name in ROWS.column_names:
        if not pa.types.is_nested(ROWS.schema.field(name).type):
            assert back.schema.field(name).type == ROWS.schema.field(name).type


# --- random schemas and data ------------------------------------------------------------------------------------------


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=5)

#: Types and values that all formats support (some formats cannot distinguish an empty string from null).
LEAVES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f32": (pa.float32(), st.floats(width=32)),
    "f64": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), TEXT),
    "bytes": (pa.binary(), st.binary(min_size=1, max_size=5)),
    "date": (pa.date32(), st.dates()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC), min_value=dt.datetime(1000, 1, 1))),  # noqa: DTZ001
    "local": (pa.timestamp("us"), st.datetimes(min_value=dt.datetime(1000, 1, 1))),  # noqa: DTZ001
    "decimal": (pa.decimal128(12, 3), st.integers(-(10**11), 10**11).map(lambda i: Decimal(i).scaleb(-3))),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    kind, values = LEAVES[draw(st.sampled_from(sorted(LEAVES)))]
    shape = draw(st.sampled_from(["plain", "plain", "list", "struct", "list of structs"]))
    if shape == "list":
        return pa.list_(kind), st.lists(values, max_size=3)
    if shape == "struct":
        return pa.struct([("x", kind), ("y", pa.int32())]), st.fixed_dictionaries({"x": values, "y": st.integers(0, 9)})
    if shape == "list of structs":
        return pa.list_(pa.struct([("x", kind)])), st.lists(st.fixed_dictionaries({"x": values}), max_size=3)
    return kind, values


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(0, 6))
    arrays, fields = [], []
    for i in range(draw(st.integers(1, 4))):
        kind, values = draw(columns())
        nullable = draw(st.booleans())
        cells = draw(st.lists(st.none() | values if nullable else values, min_size=count, max_size=count))
        comment = draw(st.none() | TEXT)
        fields.append(pa.field(f"c{i}", kind, nullable, None if comment is None else {"comment": comment}))
        arrays.append(pa.array(cells, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@given(tables(), st.lists(st.sampled_from(FORMATS), min_size=2, max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_rows_round_trip_through_all_formats(table: pa.Table, way: list[str]) -> None:
    place = f"memory://{uuid.uuid4().hex}"
    store = open_store(f"{place}/0")
    with store.open_output("x.parquet") as sink:
        pq.write_table(table, sink)
    expected = checksum(table)
    for i, format in enumerate(way, 1):
        options = {"nulls": "mask"} if format == "lance" else None
        done = trilake.convert(f"{place}/{i - 1}", f"{place}/{i}", format=format, options=options)
        assert done.checksum == expected
    end = open_source(
        open_store(f"{place}/{len(way)}"), format=None, version=None, timestamp=None, columns=None, filter=None
    )
    rows = [b for piece in end.whole for b in piece()]
    assert checksum(rows) == expected
    for was, now in zip(table.schema, end.schema, strict=True):
        assert (was.name, was.nullable, was.metadata) == (now.name, now.nullable, now.metadata or None)
        assert str(was.type).split("<")[0] == str(now.type).split("<")[0]


# --- preserved parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_partitions(tmp_path: Path, start: str, end: str) -> None:
    rows = ROWS.select(["n", "b", "p"])
    more: dict[str, Any] = {"partition_by": "p"}
    if start == "parquet":
        more = {"partitioning": ["p"], "partitioning_flavor": "hive"}
    source = make(rows, start, str(tmp_path / "from"), **({} if start == "lance" else more))
    target = str(tmp_path / "to")
    options = {"nulls": "mask"} if end == "lance" else None
    given = {"partition_by": "p"} if start == "lance" and end != "lance" else {}
    done = trilake.convert(source, target, format=end, options=options, **given)
    assert same_rows(read(target), rows)
    assert done.files == (1 if end == "lance" else 3)
    assert bool(list((tmp_path / "to").rglob("p=x/*"))) == (end != "lance")
    if end != "lance":
        flat = trilake.convert(source, tmp_path / "flat", format=end, partition_by=[])
        assert flat.files == 1
        assert flat.checksum == done.checksum


def test_partition_values_that_folder_names_cannot_keep(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2], "p": ["01", "2"], "q": [1.5, 2.5]})
    source = make(rows, "delta", str(tmp_path / "from"), partition_by=["p"])
    for end in ("trevni", "parquet"):
        with pytest.raises(ChecksumMismatchError, match=r"column p.*partition_by"):
            trilake.convert(source, tmp_path / end, format=end)
        assert not [p for p in (tmp_path / end).rglob("*") if p.is_file() and not p.name.endswith(".end")]
        assert trilake.convert(source, tmp_path / end, format=end, partition_by=[]).rows == 2
    by_double = make(rows, "delta", str(tmp_path / "q"), partition_by=["q"])
    assert trilake.convert(by_double, tmp_path / "q-trevni", format="trevni").files == 1
    assert trilake.convert(by_double, tmp_path / "q-delta", format="delta").files == 2


def test_vectors_and_dictionaries_round_trip(tmp_path: Path) -> None:
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    rows = pa.table(
        {"v": vectors, "k": pa.array(["a", "b"]).dictionary_encode(), "big": pa.array([1, 2**64 - 1], pa.uint64())}
    )
    source = make(rows.cast(pa.schema([f.with_nullable(False) for f in rows.schema])), "parquet", str(tmp_path / "p"))
    lance = tmp_path / "l"
    trilake.convert(source, lance, format="lance")
    assert trilake.open(lance).schema.field("v").type == pa.list_(pa.float32(), 2)
    assert pa.types.is_dictionary(trilake.open(lance).schema.field("k").type)
    delta, again = tmp_path / "d", tmp_path / "again"
    done = trilake.convert(lance, delta, format="delta")
    assert trilake.open(delta).schema.field("v").type == pa.list_(pa.field("element", pa.float32()))
    assert trilake.open(delta).schema.field("big").type == pa.decimal128(20, 0)
    trilake.convert(delta, again, format="lance")
    schema = trilake.open(again).schema
    assert schema.field("v").type == pa.list_(pa.float32(), 2)
    assert pa.types.is_dictionary(schema.field("k").type)
    assert checksum(trilake.open(again).to_arrow()) == done.checksum == checksum(rows)
    trilake.convert(again, tmp_path / "t", format="trevni")
    assert trilake.open(tmp_path / "t").schema.field("v").type == pa.list_(pa.float32(), 2)


def test_versions_columns_and_filters(tmp_path: Path) -> None:
    for format in FORMATS:
        source = make(ROWS, format, str(tmp_path / format))
        target = tmp_path / f"{format}-part"
        done = trilake.convert(source, target, format="delta", columns=["S", "n"], filter="n > 2 and b = 3")
        assert done.rows == 1
        assert trilake.open(target).to_arrow().to_pylist() == [{"s": "x", "n": 3}]
        assert trilake.convert(source, tmp_path / f"{format}-e", format="parquet", filter=pc.field("n") == 4).rows == 1
        assert trilake.convert(source, tmp_path / f"{format}-0", format="trevni", filter="n > 9").rows == 0
        assert read(str(tmp_path / f"{format}-0")).column_names == ROWS.column_names
    for format in ("delta", "lance"):
        trilake.write(ROWS, tmp_path / format, mode="append", format=format)
        first = 0 if format == "delta" else 1
        done = trilake.convert(tmp_path / format, tmp_path / f"{format}-v", format="trevni", version=first)
        assert (done.rows, done.source_version) == (4, first)
    with pytest.raises(InvalidArgumentError, match="no versions"):
        trilake.convert(tmp_path / "parquet", tmp_path / "x", format="delta", version=1)
    with pytest.raises(InvalidArgumentError, match="no column 'zz'"):
        trilake.convert(tmp_path / "parquet", tmp_path / "x", format="delta", columns=["zz"])


@pytest.mark.parametrize("end", FORMATS)
def test_write_modes(tmp_path: Path, end: str) -> None:
    source = make(ROWS, "delta", str(tmp_path / "from"), partition_by="p")
    target = tmp_path / "to"
    options = {"nulls": "mask"} if end == "lance" else None
    trilake.convert(source, target, format=end, options=options)
    with pytest.raises(TableExistsError) as rejected:
        trilake.convert(source, target, format=end, options=options)
    assert "ignore" not in str(rejected.value)  # not a mode of convert
    done = trilake.convert(source, target, format=end, mode="append", filter="n < 3")
    assert done.rows == 2
    assert read(str(target)).num_rows == 6
    done = trilake.convert(source, target, format=end, mode="overwrite", options=options, filter="n = 1")
    assert done.rows == 1
    assert read(str(target)).to_pylist()[0]["s"] == "a"
    assert read(str(target)).num_rows == 1
    with pytest.raises(InvalidArgumentError, match="unknown mode"):
        trilake.convert(source, target, format=end, mode="ignore")
    other = "lance" if end != "lance" else "delta"
    with pytest.raises(TableExistsError, match=f"the target already contains {end} files"):
        trilake.convert(source, target, format=other, mode="overwrite")


def test_parquet_folder_respects_rows_per_file(tmp_path: Path) -> None:
    """The option was checked only after full row groups, so files had at least 131,072 rows."""
    source = make(pa.table({"n": range(25), "p": ["a", "b"] * 12 + ["a"]}), "delta", str(tmp_path / "from"))
    how = {"maxRowsPerFile": "10", "maxRowsPerGroup": "4"}
    trilake.convert(source, tmp_path / "whole", format="parquet", options=how)
    trilake.convert(source, tmp_path / "parts", format="parquet", options=how, partition_by="p")
    for folder, rows in (("whole", [5, 10, 10]), ("parts", [2, 3, 10, 10])):
        footers = [pq.read_metadata(f) for f in (tmp_path / folder).rglob("*.parquet")]
        assert sorted(f.num_rows for f in footers) == rows
        assert max(f.row_group(i).num_rows for f in footers for i in range(f.num_row_groups)) == 4
    with pytest.raises(InvalidArgumentError, match="integer >= 1"):
        trilake.convert(source, tmp_path / "x", format="parquet", options={"maxRowsPerFile": "²"})


def test_parquet_folder_has_a_success_file(tmp_path: Path) -> None:
    source = make(ROWS, "delta", str(tmp_path / "from"))
    target = tmp_path / "to"
    trilake.convert(source, target, format="parquet", options={"compression": "zstd", "maxRowsPerFile": "2"})
    assert (target / "_SUCCESS").exists()
    assert not (target / "_temporary").exists()
    assert pads.dataset(target, partitioning="hive", exclude_invalid_files=True).to_table().num_rows == 4
    first, _ = target.glob("*.parquet")
    assert trilake.convert(first, tmp_path / "one", format="delta").rows == 2
    with pytest.raises(UnknownOptionError, match="compressor"):
        trilake.convert(source, tmp_path / "x", format="parquet", options={"compressor": "zstd"})
