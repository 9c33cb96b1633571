"""``trilake.convert``: every pair of formats, what is kept, and what is refused before anything is written."""

# ruff: noqa: E501 - a table of types is easier to read in one line each

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
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
from trilake.checksum import checksum
from trilake.conversion.sources import open_source
from trilake.conversion.targets.delta import DeltaRows
from trilake.conversion.targets.lance import LanceRows
from trilake.conversion.targets.parquet_folder import ParquetRows
from trilake.conversion.targets.trevni import TrevniRows
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ChecksumMismatchError,
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    UnknownOptionError,
    WriteFailedError,
)
from trilake.storage import open_store
from trilake.trevni.tables.row_groups import RowGroupWriter

FORMATS = ["delta", "lance", "trevni", "parquet"]
PAIRS = [(a, b) for a in FORMATS for b in FORMATS]
UTC = dt.UTC


def make(table: pa.Table, format: str, where: str, **more: Any) -> str:
    """A table of a format that has these rows."""
    if format == "parquet":
        pads.write_dataset(table, where, format="parquet", **more)
    elif format == "lance":
        trilake.write(table, where, format="lance", properties={"nulls": "mask"}, **more)
    else:
        trilake.write(table, where, format=format, **more)
    return where


def read(where: str, format: str | None = None, **more: Any) -> pa.Table:
    """The rows at a place, as ``convert`` reads them."""
    asked = {"format": format, "version": None, "timestamp": None, "columns": None, "filter": None, **more}
    source = open_source(open_store(where), **asked)
    batches = [b for piece in source.whole for b in piece.batches()]
    schema = pa.schema([f.with_nullable(True) for f in source.schema])
    return pa.Table.from_batches([b.cast(schema) for b in batches], schema=schema)


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    def rows(table: pa.Table) -> list[str]:
        names = sorted(table.column_names)
        return sorted(repr([(n, r[n]) for n in names]) for r in table.to_pylist())

    return rows(one) == rows(other)


ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4], pa.int64()),
        "b": pa.array([1, None, 3, 4], pa.int8()),
        "s": ["a", None, "x", "y"],
        "f": [1.5, None, -0.0, float("inf")],
        "e": pa.array([0.25, 1.0, None, 2.0], pa.float32()),
        "o": [True, False, None, True],
        "d": pa.array([Decimal("1.50"), None, Decimal("-2.25"), None], pa.decimal128(20, 2)),
        "t": pa.array([dt.datetime(2020, 1, 1, 1, 2, 3, 456789, UTC), None, None, None], pa.timestamp("us", "UTC")),
        "u": pa.array([dt.datetime(1960, 1, 1, 1, 2, 3, 4), None, None, None], pa.timestamp("us")),  # noqa: DTZ001
        "y": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1), None]),
        "v": [b"q", None, b"a", b"\x00"],
        "l": [["x", "z"], None, [], ["z"]],
        "r": [{"a": 1, "c": "q"}, None, {"a": 2, "c": "p"}, {"a": 3, "c": "w"}],
        "p": ["x", "x", "q", "y"],
    }
)


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


# --- schemas and data at random --------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=5)
#: Types that all formats have, and values that all can hold (an empty text is no null only where it can be told).
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
def test_rows_go_through_any_formats_and_come_back(table: pa.Table, way: list[str]) -> None:
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
    rows = [b for piece in end.whole for b in piece.batches()]
    assert checksum(rows) == expected
    for was, now in zip(table.schema, end.schema, strict=True):
        assert (was.name, was.nullable, was.metadata) == (now.name, now.nullable, now.metadata or None)
        assert str(was.type).split("<")[0] == str(now.type).split("<")[0]


# --- what is kept ----------------------------------------------------------------------------------------------------


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


def test_partition_values_that_folder_names_would_change(tmp_path: Path) -> None:
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


def test_vectors_and_dictionaries_come_back(tmp_path: Path) -> None:
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
def test_modes(tmp_path: Path, end: str) -> None:
    source = make(ROWS, "delta", str(tmp_path / "from"), partition_by="p")
    target = tmp_path / "to"
    options = {"nulls": "mask"} if end == "lance" else None
    trilake.convert(source, target, format=end, options=options)
    with pytest.raises(TableExistsError):
        trilake.convert(source, target, format=end, options=options)
    done = trilake.convert(source, target, format=end, mode="append", filter="n < 3")
    assert done.rows == 2
    assert read(str(target)).num_rows == 6
    done = trilake.convert(source, target, format=end, mode="overwrite", options=options, filter="n = 1")
    assert done.rows == 1
    assert read(str(target)).to_pylist()[0]["s"] == "a"
    assert read(str(target)).num_rows == 1
    with pytest.raises(InvalidArgumentError, match="modes are"):
        trilake.convert(source, target, format=end, mode="ignore")
    other = "lance" if end != "lance" else "delta"
    with pytest.raises(TableExistsError, match=f"{end} files are there"):
        trilake.convert(source, target, format=other, mode="overwrite")


def test_parquet_folders_say_when_they_are_complete(tmp_path: Path) -> None:
    source = make(ROWS, "delta", str(tmp_path / "from"))
    target = tmp_path / "to"
    trilake.convert(source, target, format="parquet", options={"compression": "zstd", "maxRowsPerFile": "2"})
    assert (target / "_SUCCESS").exists()
    assert not (target / "_temporary").exists()
    assert pads.dataset(target, partitioning="hive", exclude_invalid_files=True).to_table().num_rows == 4
    (file,) = target.glob("*.parquet")
    assert trilake.convert(file, tmp_path / "one", format="delta").rows == 4
    with pytest.raises(UnknownOptionError, match="compressor"):
        trilake.convert(source, tmp_path / "x", format="parquet", options={"compressor": "zstd"})


# --- what is refused -------------------------------------------------------------------------------------------------

MAPS = pa.table({"n": [1], "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
UNIONS = pa.table({"n": [1], "m": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})
TIMES = pa.table({"n": [1], "m": pa.array([dt.time(1)], pa.time64("us"))})


@pytest.mark.parametrize(
    ("rows", "start", "end"),
    [(MAPS, "delta", "lance"), (UNIONS, "trevni", "parquet"), (UNIONS, "trevni", "delta"), (UNIONS, "trevni", "lance"),
     (TIMES, "parquet", "delta")],
)  # fmt: skip
def test_types_are_refused_before_anything_is_written(tmp_path: Path, rows: pa.Table, start: str, end: str) -> None:
    source = make(rows, start, str(tmp_path / "from"))
    with pytest.raises(SchemaMismatchError) as e:
        trilake.convert(source, tmp_path / "to", format=end)
    assert str(e.value.context["column"]).startswith("m")
    assert not list((tmp_path / "to").rglob("*"))
    assert trilake.convert(source, tmp_path / "to", format=end, columns=["n"]).rows == 1


#: A value of a type, and what becomes of the type in each format: None where it is refused.
BECOMES: list[tuple[pa.Array, list[pa.DataType | None]]] = [
    (pa.array([1], pa.uint8()), [pa.int16(), pa.uint8(), pa.uint8(), pa.uint8()]),
    (pa.array([1.5], pa.float16()), [pa.float32(), pa.float16(), pa.float16(), pa.float16()]),
    (pa.array([1000], pa.timestamp("ns")), [pa.timestamp("us"), *[pa.timestamp("ns")] * 3]),
    (pa.array([1], pa.timestamp("ms", "Europe/Berlin")), [pa.timestamp("us", "UTC"), *[pa.timestamp("ms", "Europe/Berlin")] * 3]),
    (pa.array(["a"], pa.string_view()), [pa.string(), pa.string(), pa.string_view(), pa.string_view()]),
    (pa.array([1.5]).dictionary_encode(), [pa.float64(), pa.float64(), pa.dictionary(pa.int32(), pa.float64()), pa.float64()]),
    (pa.array([[1]], pa.list_view(pa.int8())), [pa.list_(pa.field("element", pa.int8())), pa.list_(pa.int8()), pa.list_view(pa.int8()), pa.list_view(pa.field("element", pa.int8()))]),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), [pa.map_(pa.string(), pa.int8()), None, pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8())]),
    (pa.array([1], pa.duration("us")), [None, *[pa.duration("us")] * 3]),
    (pa.array([Decimal("1.5")], pa.decimal256(50, 1)), [None, *[pa.decimal256(50, 1)] * 3]),
    (pa.array([Decimal("1.5")], pa.decimal64(15, 1)), [pa.decimal128(15, 1), pa.decimal128(15, 1), pa.decimal64(15, 1), pa.decimal64(15, 1)]),
    (pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"])), [pa.string(), pa.string(), pa.run_end_encoded(pa.int32(), pa.string()), None]),
    (pa.array([{}], pa.struct([])), [None, pa.struct([]), pa.struct([]), None]),
    (pa.nulls(1), [pa.null()] * 4),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BECOMES)))
def test_what_becomes_of_types(tmp_path: Path, case: int) -> None:
    values, found = BECOMES[case]
    source = make(pa.table({"k": [1], "c": values}), "trevni", str(tmp_path / "from"))
    for end, expected in zip(FORMATS, found, strict=True):
        target = str(tmp_path / end)
        options = {"nulls": "mask"} if end == "lance" else None
        if expected is None:
            with pytest.raises(SchemaMismatchError, match="column: c"):
                trilake.convert(source, target, format=end, options=options)
            continue
        done = trilake.convert(source, target, format=end, options=options)
        assert done.checksum == checksum(pa.table({"k": [1], "c": values}))
        assert read(target).schema.field("c").type == expected
        back = trilake.convert(target, tmp_path / f"back-{end}", format="trevni")
        assert back.checksum == done.checksum


def test_nanoseconds_that_a_delta_table_would_lose(tmp_path: Path) -> None:
    source = make(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), "trevni", str(tmp_path / "from"))
    with pytest.raises(SchemaMismatchError, match=r"finer than a microsecond.*column: t"):
        trilake.convert(source, tmp_path / "to", format="delta")


def test_nulls_of_lance(tmp_path: Path) -> None:
    source = make(pa.table({"n": [1, None], "s": ["", "x"]}), "delta", str(tmp_path / "from"))
    with pytest.raises(SchemaMismatchError, match=r"null would be lost.*column: n"):
        trilake.convert(source, tmp_path / "a", format="lance", columns=["n"])
    with pytest.raises(SchemaMismatchError, match=r"empty value.*column: s.*mask"):
        trilake.convert(source, tmp_path / "a", format="lance", columns=["s"])
    done = trilake.convert(source, tmp_path / "m", format="lance", options={"nulls": "mask"})
    assert same_rows(trilake.open(tmp_path / "m").to_arrow(), trilake.open(source).to_arrow())
    zero = trilake.convert(source, tmp_path / "z", format="lance", options={"nulls": "zero"})
    assert (zero.rows, zero.verified) == (2, False)
    assert "not compared" in repr(zero)
    assert "not compared" not in repr(done)
    nested = make(pa.table({"r": [{"s": ""}]}), "delta", str(tmp_path / "nested"))
    with pytest.raises(SchemaMismatchError, match=r"column: r\.s"):
        trilake.convert(nested, tmp_path / "b", format="lance", options={"nulls": "mask"})
    assert not [p for p in tmp_path.rglob("*.lance") if p.parts[-3] not in ("m", "z")]


def test_places_and_names(tmp_path: Path) -> None:
    source = make(ROWS, "delta", str(tmp_path / "from"))
    with pytest.raises(InvalidArgumentError, match="same place"):
        trilake.convert(source, source + "/", format="lance")
    with pytest.raises(InvalidArgumentError, match="formats are delta, lance, parquet, trevni"):
        trilake.convert(source, tmp_path / "to", format="orc")
    with pytest.raises(TableNotFoundError):
        trilake.convert(tmp_path / "nothing", tmp_path / "to", format="delta")
    with pytest.raises(InvalidArgumentError, match="no partitions"):
        trilake.convert(source, tmp_path / "to", format="lance", partition_by="p")
    with pytest.raises(InvalidArgumentError, match="partition_by names 'zz'"):
        trilake.convert(source, tmp_path / "to", format="delta", partition_by="zz")
    with pytest.raises(InvalidArgumentError, match="data_format"):
        trilake.convert(source, tmp_path / "to", format="trevni", data_format="lance")
    done = trilake.convert(
        source, tmp_path / "dl", format="delta", data_format="trevni", options={"delta.appendOnly": "true"}
    )
    table = trilake.open(tmp_path / "dl")
    assert isinstance(table, ArrowDeltaTable)
    assert (table.metadata.provider, table.metadata.configuration["delta.appendOnly"]) == ("trevni", "true")
    assert "4 rows" in repr(done)
    assert str(done.checksum) in repr(done)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", FORMATS)
def test_rows_that_read_back_as_others_are_never_seen(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's reader gives another value: then nothing of the target may be there."""
    source = make(ROWS.select(["n", "y", "f"]), "delta", str(tmp_path / "from"))
    target = {"delta": DeltaRows, "lance": LanceRows, "trevni": TrevniRows, "parquet": ParquetRows}[end]
    true_reader = target.read_back

    def wrong(self: Any, written: Any) -> Iterator[pa.RecordBatch]:
        for batch in true_reader(self, written):
            yield batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), pa.scalar(1, pa.int64())))

    options = {"nulls": "mask"} if end == "lance" else None
    with monkeypatch.context() as patch:
        patch.setattr(target, "read_back", wrong)
        with pytest.raises(ChecksumMismatchError, match="in column n; the target is unchanged"):
            trilake.convert(source, tmp_path / "to", format=end, options=options)
    left = [p for p in (tmp_path / "to").rglob("*") if p.is_file()]
    assert all("_staged" in p.parts for p in left)
    with pytest.raises(TableNotFoundError):
        trilake.open(tmp_path / "to")
    assert trilake.convert(source, tmp_path / "to", format=end, options=options).rows == 4


@pytest.mark.parametrize("end", FORMATS)
def test_a_source_that_breaks_leaves_nothing(tmp_path: Path, end: str) -> None:
    source = tmp_path / "from"
    for i in range(3):
        trilake.write(ROWS.select(["n", "p"]).slice(i, 1), source, mode="append")
    files = sorted(source.glob("*.parquet"))
    files[-1].write_bytes(files[-1].read_bytes()[:-9])
    with pytest.raises(TrilakeError, match=r"\.parquet"):
        trilake.convert(source, tmp_path / "to", format=end)
    assert all("_staged" in p.parts for p in (tmp_path / "to").rglob("*") if p.is_file())


def test_memory_is_bounded_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are never collected: while a target writes, it has seen few batches more than it was given."""
    where = f"memory://{uuid.uuid4().hex}"
    store = open_store(f"{where}/a")
    rows = pa.table({"n": range(1_000_000)})
    with store.open_output("x.parquet") as sink:
        pq.write_table(rows, sink, row_group_size=1 << 16)
    seen: list[int] = []
    true_write = RowGroupWriter.write

    def write(self: RowGroupWriter, batch: pa.RecordBatch) -> None:
        seen.append(batch.num_rows)
        true_write(self, batch)

    monkeypatch.setattr(RowGroupWriter, "write", write)
    assert trilake.convert(f"{where}/a", f"{where}/b", format="trevni").rows == 1_000_000
    assert max(seen) <= 1 << 16
    assert len(seen) > 10


def test_a_bar_moves_as_rows_are_read_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilake.conversion import run

    bars = []
    true_progress = run.progress

    def progress(*args: Any, **more: Any) -> Any:
        bars.append(true_progress(*args, **more))
        return _Kept(bars)

    class _Kept:
        def __init__(self, made: list[Any]) -> None:
            self.manager = made.pop()

        def __enter__(self) -> Any:
            bars.append(self.manager.__enter__())
            return bars[-1]

        def __exit__(self, *error: Any) -> Any:
            return self.manager.__exit__(*error)

    monkeypatch.setattr(run, "progress", progress)
    source = make(ROWS, "delta", str(tmp_path / "from"))
    trilake.convert(source, tmp_path / "to", format="trevni")
    assert [(b.label, b.total, b.done, b.unit) for b in bars] == [("convert", 8, 8, "rows")]


def test_a_folder_of_parquet_files_that_cannot_be_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilake.conversion import parquet

    source = make(ROWS, "delta", str(tmp_path / "from"), partition_by="p")
    trilake.convert(source, tmp_path / "to", format="parquet")
    before = sorted((tmp_path / "to").rglob("*.parquet"))
    true_move, calls = parquet.move, []

    def move(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise OSError("the disk is full")
        true_move(*args)

    monkeypatch.setattr(parquet, "move", move)
    with pytest.raises(WriteFailedError, match="the disk is full"):
        trilake.convert(source, tmp_path / "to", format="parquet", mode="overwrite")
    assert sorted((tmp_path / "to").rglob("*.parquet")) == before
    assert same_rows(read(str(tmp_path / "to")), ROWS)


@pytest.mark.parametrize("behind", ["link", "table"])
def test_an_overwrite_of_parquet_files_removes_none_behind_a_link_or_in_another_table(
    tmp_path: Path, behind: str
) -> None:
    source, folder = make(ROWS, "delta", str(tmp_path / "from")), tmp_path / "to"
    trilake.convert(source, folder, format="parquet")
    if behind == "link":
        trilake.convert(source, tmp_path / "theirs", format="parquet")
        (folder / "inner").symlink_to(tmp_path / "theirs")
        kept = tmp_path / "theirs"
    else:
        trilake.write(ROWS, str(folder / "inner"))
        kept = folder / "inner"
    before = sorted(p.name for p in (*kept.iterdir(), *folder.iterdir()))
    with pytest.raises(StorageError, match="behind a link or in another table"):
        trilake.convert(source, folder, format="parquet", mode="overwrite")
    assert sorted(p.name for p in (*kept.iterdir(), *folder.iterdir())) == before


def test_staged_parquet_files_behind_a_link_are_not_removed(tmp_path: Path) -> None:
    from trilake.conversion import parquet
    from trilake.storage import open_store

    (tmp_path / "theirs" / "job").mkdir(parents=True)
    (tmp_path / "theirs" / "job" / "x").write_text("x")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "_temporary").symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageError):
        parquet.clean(open_store(str(tmp_path / "to")), "job")
    assert (tmp_path / "theirs" / "job" / "x").exists()
