"""``trilake.convert``: conversion of types and names, and errors before anything is written."""

# ruff: noqa: E501 - a table of types is easier to read in one line each
from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import trilake
from tests.tools.convert.conversions import FORMATS, ROWS, make, read, same_rows
from trilake.delta.conversion import from_delta
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import DELTA_TYPE, ArrayType, PrimitiveType, StructField, StructType
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableNotFoundError
from trilake.storage import open_store
from trilake.table.checksum import checksum

MAPS = pa.table({"n": [1], "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
UNIONS = pa.table({"n": [1], "m": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})
TIMES = pa.table({"n": [1], "m": pa.array([dt.time(1)], pa.time64("us"))})


@pytest.mark.parametrize(
    ("rows", "start", "end"),
    [(MAPS, "delta", "lance"), (UNIONS, "trevni", "parquet"), (UNIONS, "trevni", "delta"), (UNIONS, "trevni", "lance"),
     (TIMES, "parquet", "delta")],
)  # fmt: skip
def test_types_are_rejected_before_anything_is_written(tmp_path: Path, rows: pa.Table, start: str, end: str) -> None:
    source = make(rows, start, str(tmp_path / "from"))
    options = {"data_storage_version": "legacy"} if end == "lance" else None
    with pytest.raises(SchemaMismatchError) as e:
        trilake.convert(source, tmp_path / "to", format=end, options=options)
    assert str(e.value.context["column"]).startswith("m")
    assert not list((tmp_path / "to").rglob("*"))
    assert trilake.convert(source, tmp_path / "to", format=end, columns=["n"]).rows == 1


#: A value of a type, and the type in each format: None if it is rejected.
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
def test_type_in_each_format(tmp_path: Path, case: int) -> None:
    values, found = BECOMES[case]
    source = make(pa.table({"k": [1], "c": values}), "trevni", str(tmp_path / "from"))
    for end, expected in zip(FORMATS, found, strict=True):
        target = str(tmp_path / end)
        options = {"data_storage_version": "legacy", "nulls": "mask"} if end == "lance" else None
        if expected is None:
            with pytest.raises(SchemaMismatchError, match="column: c"):
                trilake.convert(source, target, format=end, options=options)
            continue
        done = trilake.convert(source, target, format=end, options=options)
        assert done.checksum == checksum(pa.table({"k": [1], "c": values}))
        assert read(target).schema.field("c").type == expected
        back = trilake.convert(target, tmp_path / f"back-{end}", format="trevni")
        assert back.checksum == done.checksum


def test_nanoseconds_that_delta_would_lose(tmp_path: Path) -> None:
    source = make(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), "trevni", str(tmp_path / "from"))
    with pytest.raises(SchemaMismatchError, match=r"Spark's microseconds cannot represent.*column: t"):
        trilake.convert(source, tmp_path / "to", format="delta")


def test_nulls_in_the_legacy_lance_format(tmp_path: Path) -> None:
    legacy = {"data_storage_version": "legacy"}
    source = make(pa.table({"n": [1, None], "s": ["", "x"]}), "delta", str(tmp_path / "from"))
    with pytest.raises(SchemaMismatchError, match=r"null would be lost.*column: n"):
        trilake.convert(source, tmp_path / "a", format="lance", columns=["n"], options=legacy)
    with pytest.raises(SchemaMismatchError, match=r"empty value.*column: s.*mask"):
        trilake.convert(source, tmp_path / "a", format="lance", columns=["s"], options=legacy)
    done = trilake.convert(source, tmp_path / "m", format="lance", options=legacy | {"nulls": "mask"})
    assert same_rows(trilake.open(tmp_path / "m").to_arrow(), trilake.open(source).to_arrow())
    zero = trilake.convert(source, tmp_path / "z", format="lance", options=legacy | {"nulls": "zero"})
    assert (zero.rows, zero.verified) == (2, False)
    assert "not compared" in repr(zero)
    assert "not compared" not in repr(done)
    nested = make(pa.table({"r": [{"s": ""}]}), "delta", str(tmp_path / "nested"))
    with pytest.raises(SchemaMismatchError, match=r"column: r\.s"):
        trilake.convert(nested, tmp_path / "b", format="lance", options=legacy | {"nulls": "mask"})
    assert not [p for p in tmp_path.rglob("*.lance") if p.parts[-3] not in ("m", "z")]


def test_lance_2_2_keeps_maps_and_nulls_of_structs(tmp_path: Path) -> None:
    maps = pa.array([[("a", None)], None, []], pa.map_(pa.string(), pa.int64()))
    rows = pa.table({"n": [1, None, 3], "s": ["", None, "x"], "m": maps, "r": [{"s": ""}, None, {"s": None}]})
    source = make(rows, "delta", str(tmp_path / "from"))
    for nulls in ("error", "mask", "zero"):
        options = {"data_storage_version": "2.2", "nulls": nulls}
        done = trilake.convert(source, tmp_path / nulls, format="lance", options=options)
        assert (done.verified, done.checksum) == (True, checksum(rows))
        assert trilake.open(tmp_path / nulls).schema.names == ["n", "s", "m", "r"]
    with pytest.raises(SchemaMismatchError, match=r"Lance 2\.1 cannot store.*map.*column: m.*2\.2"):
        trilake.convert(source, tmp_path / "old", format="lance", options={"dataStorageVersion": "2.1"})
    with pytest.raises(InvalidArgumentError, match=r"'3' is not a valid data_storage_version"):
        trilake.convert(source, tmp_path / "old", format="lance", options={"dataStorageVersion": "3"})


def test_invalid_paths_and_names_are_rejected(tmp_path: Path) -> None:
    source = make(ROWS, "delta", str(tmp_path / "from"))
    with pytest.raises(InvalidArgumentError, match="same location"):
        trilake.convert(source, source + "/", format="lance")
    with pytest.raises(InvalidArgumentError, match="use one of delta, lance, parquet, trevni"):
        trilake.convert(source, tmp_path / "to", format="orc")
    with pytest.raises(TableNotFoundError):
        trilake.convert(tmp_path / "nothing", tmp_path / "to", format="delta")
    with pytest.raises(InvalidArgumentError, match="does not support partitions"):
        trilake.convert(source, tmp_path / "to", format="lance", partition_by="p")
    with pytest.raises(InvalidArgumentError, match="partition_by: column 'zz' not found"):
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


@pytest.mark.parametrize("through", ["delta", "lance", "trevni", "parquet"])
def test_variants_round_trip_to_delta(tmp_path: Path, through: str) -> None:
    """Arrow represents them as structs of two binaries, which were written as structs."""
    kind = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
    one = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
    deep = StructType((StructField("a", ArrayType(PrimitiveType("variant"))),))
    schema = StructType((StructField("v", PrimitiveType("variant")), StructField("s", deep)))
    values = [pa.array([one], kind), pa.array([{"a": [one]}], pa.struct([("a", pa.list_(kind))]))]
    rows = pa.Table.from_arrays(values, schema=from_delta(schema))
    first = trilake.convert(make(rows, "trevni", str(tmp_path / "rows")), tmp_path / "first", format="delta")
    trilake.convert(first.target, tmp_path / "through", format=through)
    trilake.convert(str(tmp_path / "through"), tmp_path / "last", format="delta")
    for name in ("first", "last"):
        head = DeltaLog(open_store(tmp_path / name)).head()
        assert str(head.metadata.schema) == "struct<v:variant,s:struct<a:array<variant>>>"
        assert "variantType" in (head.protocol.reader_features or ())
        assert trilake.open(tmp_path / name).to_arrow().to_pylist() == [{"v": one, "s": {"a": [one]}}]


def test_written_variants_stay_variants(tmp_path: Path) -> None:
    """Variants read from a table became structs of two binaries in a new table or with schema evolution."""
    rows = duckdb.sql("SELECT 5::VARIANT AS v, [6::VARIANT] AS l, {'a': 'x'::VARIANT, 'n': 1} AS s")
    kinds = "v:variant,l:array<variant>,s:struct<a:variant,n:integer>"
    trilake.write(rows, tmp_path / "first")
    read = trilake.open(tmp_path / "first").to_arrow()
    trilake.write(read, tmp_path / "trevni", format="trevni")
    trilake.write(trilake.open(tmp_path / "trevni").to_arrow(), tmp_path / "last")
    trilake.write(pa.table({"k": pa.array([], "int32")}), tmp_path / "grows")
    trilake.write(read, tmp_path / "grows", mode="append", schema_mode="merge")
    for name, before in (("first", ""), ("last", ""), ("grows", "k:integer,")):
        head = DeltaLog(open_store(tmp_path / name)).head()
        assert str(head.metadata.schema) == f"struct<{before}{kinds}>"
        assert trilake.open(tmp_path / name).to_arrow(["v", "l", "s"]).equals(read)
    damaged = read.select(["v"]).replace_schema_metadata(None)
    for mark in (b"\xff", b"{}", b'{"type":"struct","fields":[]}', b'{"type":"array","elementType":"variant"}'):
        schema = pa.schema([damaged.schema.field("v").with_metadata({DELTA_TYPE: mark})])
        trilake.write(damaged.cast(schema), tmp_path / "plain", mode="overwrite", schema_mode="overwrite")
        assert str(DeltaLog(open_store(tmp_path / "plain")).head().metadata.schema).startswith("struct<v:struct<")
