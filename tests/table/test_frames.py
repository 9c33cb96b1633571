"""Frame types: inputs of ``trilake.write``, and conversions of tables."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import trilake
from trilake import lance
from trilake.errors import InvalidArgumentError, SchemaMismatchError

_ROWS = {"id": [1, 2, 3], "name": ["a", None, "c"]}
_TABLE = pa.table(_ROWS)


class _OtherBatch:
    """A batch of another library, such as ``arro3``, which deltalake users have."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


class _HuggingFace:
    """A dataset of Hugging Face, of which ``indices`` are selected; the library is too large for the tests."""

    def __init__(self, table: pa.Table, indices: list[int] | None = None, *, features: bool = True) -> None:
        self.table, self.indices = table, indices
        schema = table.schema.with_metadata({"huggingface": "{}"})
        self.features = SimpleNamespace(arrow_schema=schema) if features else None

    def with_format(self, kind: str) -> _HuggingFace:
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        rows = self.table if self.indices is None else self.table.take(self.indices)
        yield from (rows.slice(start, 2) for start in range(0, len(rows), 2))


_DATASET = type("Dataset", (_HuggingFace,), {"__module__": "datasets.arrow_dataset"})
_STREAMED = type("IterableDataset", (_HuggingFace,), {"__module__": "datasets.iterable_dataset"})


_FRAMES: dict[str, Callable[[], Any]] = {
    "table": lambda: _TABLE,
    "batch": lambda: _TABLE.to_batches()[0],
    "reader": _TABLE.to_reader,
    "batches": lambda: iter(_TABLE.to_batches()),
    "batch of others": lambda: _OtherBatch(_TABLE.to_batches()[0]),
    "batches of others": lambda: [_OtherBatch(b) for b in _TABLE.to_batches(max_chunksize=2)],
    "dataset": lambda: ds.dataset(_TABLE),
    "scanner": lambda: ds.dataset(_TABLE).scanner(),
    "pandas": _TABLE.to_pandas,
    "pandas filtered": lambda: pd.concat([_TABLE.to_pandas(), _TABLE.to_pandas()]).iloc[:3].sort_values("id"),
    "polars": lambda: pl.DataFrame(_ROWS),
    "polars lazy": lambda: pl.DataFrame(_ROWS).lazy().filter(pl.col("id") > 0),
    "duckdb": lambda: duckdb.from_arrow(_TABLE),
    "hugging face": lambda: _DATASET(_TABLE.take([2, 0, 0, 1]), [1, 3, 0]),
    "hugging face stream": lambda: _STREAMED(_TABLE),
    "dict": lambda: _ROWS,
    "list of dicts": lambda: [{"id": 1, "name": "a"}, {"id": 2}, {"id": 3, "name": "c"}],
}


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
@pytest.mark.parametrize("frame", _FRAMES)
def test_every_frame_type_is_written_to_every_format(tmp_path: Path, frame: str, format: str) -> None:
    path = str(tmp_path / "t")
    assert trilake.write(_FRAMES[frame](), path, format=format).rows_added == 3
    found = trilake.open(path).to_arrow().sort_by("id").to_pydict()
    assert found == _ROWS


def test_nested_string_views_are_written_to_lance(tmp_path: Path) -> None:
    kind = pa.struct([("s", pa.list_(pa.string_view())), ("b", pa.binary_view())])
    rows = pa.table({"x": pa.array([{"s": ["a", "b"], "b": b"z"}], kind)})
    trilake.write(rows, str(tmp_path / "t"), format="trevni")
    assert trilake.open(str(tmp_path / "t")).to_arrow().to_pylist() == rows.to_pylist()
    flat = pa.table({"s": pa.array(["a", "b"], pa.string_view())})
    trilake.write(flat, str(tmp_path / "l"), format="lance")
    assert trilake.open(str(tmp_path / "l")).to_arrow().to_pylist() == flat.to_pylist()


@pytest.mark.parametrize(
    "data",
    [
        [],
        7,
        "text",
        [1, 2],
        {"a": [1], "b": [1, 2]},
        [{"a": 1}, 5],
        [{"a": 1}, {"a": "x"}],
        pa.array([1]),
        [pa.array([1])],
        _STREAMED(_TABLE, features=False),
        type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})(train=1),
    ],
)
def test_unsupported_input_is_rejected(data: Any) -> None:
    with pytest.raises((InvalidArgumentError, SchemaMismatchError)) as found:
        trilake.write(data, "memory://frames-rejected")
    assert found.value.help


def test_datasets_of_hugging_face_keep_their_features(tmp_path: Path) -> None:
    rows = lance.write_dataset(_DATASET(_TABLE, [2, 0]), tmp_path / "t")
    assert rows.schema == _TABLE.schema.with_metadata({"huggingface": "{}"})
    assert rows.to_table()["id"].to_pylist() == [3, 1]
    rows = lance.write_dataset(_STREAMED(_TABLE), tmp_path / "t", mode="append")
    assert rows.to_table()["name"].to_pylist() == ["c", "a", "a", None, "c"]


def test_merge_accepts_every_frame_type() -> None:
    for name, frame in _FRAMES.items():
        uri = f"memory://frames-merge-{name.replace(' ', '-')}"
        trilake.write(_TABLE.slice(0, 1), uri)
        merge = trilake.open(uri).merge(frame(), "source.id = target.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        assert trilake.open(uri).to_arrow().sort_by("id").to_pydict() == _ROWS, name


@pytest.fixture(params=["delta", "lance", "trevni"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = str(tmp_path / "t")
    for start in (0, 100, 200):
        rows = {"n": list(range(start, start + 100)), "s": [f"s{i}" for i in range(start, start + 100)]}
        trilake.write(rows, path, mode="append", format=request.param)
    return trilake.open(path, format=request.param)


def test_table_converts_to_every_frame_type(table: Any) -> None:
    assert table.to_pandas(["n"], "n >= 290")["n"].sort_values().tolist() == list(range(290, 300))
    assert sorted(table.to_polars(["n"], "n >= 290")["n"].to_list()) == list(range(290, 300))
    assert table.to_duckdb().filter("n >= 290 AND s <> 's299'").aggregate("sum(n), count(*)").fetchall() == [(2646, 9)]
    connection = duckdb.connect()
    assert table.to_duckdb(connection, filter="n < 3").aggregate("count(*)").fetchall() == [(3,)]
    dataset = table.to_pyarrow_dataset()
    assert dataset.schema.names == ["n", "s"]
    assert dataset.count_rows(filter=pc.field("n") < 5) == 5
    assert dataset.filter(pc.field("n") > 4).to_table(["n"], filter=pc.field("n") < 7)["n"].to_pylist() == [5, 6]
    lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("n") >= 298).select("s").collect()
    assert sorted(lazy["s"].to_list()) == ["s298", "s299"]
    assert dataset.to_table(columns={"double": pc.field("n") * 2})["double"].to_pylist()[:0] == []
    assert dataset.sort_by("n").head(2).to_pydict()["n"] == [0, 1]
    assert table.head().num_rows == 5
    assert table.limit(150).num_rows == 150
    assert table.limit(1000, ["s"]).num_rows == 300
    assert table.limit(0).schema.names == ["n", "s"]
    assert table.limit(4, filter="n = 7")["n"].to_pylist() == [7]
    for wrong in (-1, True, "7"):
        with pytest.raises(InvalidArgumentError):
            table.limit(wrong)
    assert sum(b.num_rows for b in table.to_batches()) == table.count() == 300
    for shown in (table._repr_html_(), table.explain("n < 5")._repr_html_()):
        assert shown.startswith("<div>")


def test_dataset_can_be_used_in_a_union(table: Any) -> None:
    dataset = table.to_pyarrow_dataset()
    more = pa.table({"n": [1000], "s": ["more"]})
    union = ds.dataset([dataset, ds.dataset(more)])
    assert union.count_rows() == 301
    assert union.to_table(filter=pc.field("n") >= 299).sort_by("n")["n"].to_pylist() == [299, 1000]
    wide = pa.schema([("s", pa.large_string()), ("n", pa.int64()), ("x", pa.bool_())])
    other = dataset.filter(pc.field("n") < 2).replace_schema(wide)
    assert other.schema == wide
    assert other.to_table().sort_by("n").to_pylist() == [{"s": f"s{n}", "n": n, "x": None} for n in (0, 1)]
    with pytest.raises(InvalidArgumentError, match="column s of type string cannot be cast to int64"):
        dataset.replace_schema(pa.schema([("s", pa.int64())]))


def test_dataset_reads_only_matching_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for day in (1, 2, 3):
        trilake.write({"day": [dt.date(2024, 1, day)] * 5, "n": list(range(5))}, path, mode="append")
    table = trilake.open(path)
    kept = set(table.explain("day = DATE'2024-01-02'").kept)
    for name in {p.name for p in path.glob("*.parquet")} - {Path(k).name for k in kept}:
        (path / name).unlink()
    rows = table.to_pyarrow_dataset().to_table(["n"], filter=pc.field("day") == dt.date(2024, 1, 2))
    assert rows["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert table.to_duckdb().filter("day = '2024-01-02'").aggregate("count(*)").fetchall() == [(5,)]


def test_dataset_excludes_deleted_rows(tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    trilake.write({"n": list(range(10))}, tmp_path / "t", properties=properties)
    trilake.open(tmp_path / "t").delete("n < 4")
    trilake.alter(tmp_path / "t").rename_column("n", "m")
    dataset = trilake.open(tmp_path / "t").to_pyarrow_dataset()
    assert dataset.count_rows() == 6
    assert sorted(dataset.to_table(filter=pc.field("m") != 9)["m"].to_pylist()) == [4, 5, 6, 7, 8]


def test_dataset_accepts_only_arrow_parameters() -> None:
    trilake.write(_TABLE, "memory://frames-parameters", mode="overwrite")
    dataset = trilake.open("memory://frames-parameters").to_pyarrow_dataset()
    assert dataset.to_table(["id"], None, 2, 3, 4, None, False).num_rows == 3
    assert dataset.count_rows(pc.field("id") > 1, use_threads=False) == 2
    for wrong in ("to_table", "count_rows", "scanner"):
        with pytest.raises(TypeError, match="colums"):
            getattr(dataset, wrong)(colums=["id"])


def test_public_names_of_the_package() -> None:
    script = """
import builtins, trilake
assert trilake.lance.__name__ == "trilake.lance" and trilake.errors.TrilakeError is trilake.TrilakeError
assert "open" in dir(trilake) and "lance" in dir(trilake)
from trilake import *
assert open is builtins.open
names = {n for n in globals() if not n.startswith("__")} & set(dir(builtins))
assert not names, names
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_swapped_path_and_rows_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot write '/") as found:
        trilake.write(str(tmp_path / "t"), _ROWS)  # type: ignore[arg-type]
    assert "pass the rows first" in str(found.value)


_ZONED = dt.datetime(2024, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=3)))
_NAIVE = _ZONED.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([_NAIVE.date(), _NAIVE], "dates and datetimes"),
        ([_ZONED, _NAIVE], "with a zone and times without"),
        ([_NAIVE, _ZONED], "with a zone and times without"),
        ([pd.Timestamp(1)], "nanoseconds"),
        ([pd.Timedelta(1)], "nanoseconds"),
        ([2**63, -1], "too large"),
        (["\ud800"], "surrogates"),
        ([1, "a"], "Could not convert"),
        ([_ZONED.timetz()], "times of day with a zone"),
        ([b"a", "a"], "strings and bytes"),
        ([np.ma.array([1, 2], mask=[0, 1])], "arrays with a mask"),
    ],
)
@pytest.mark.parametrize("frame", ["dict", "rows", "nested", "pandas"])
def test_unconvertible_values_name_their_column(tmp_path: Path, values: list[Any], words: str, frame: str) -> None:
    data: Any = {
        "dict": lambda: {"k": values, "v": values},
        "rows": lambda: [{"v": v} for v in values],
        "nested": lambda: [{"v": {"x": [v]}} for v in values],
        "pandas": lambda: pd.DataFrame({"v": pd.Series(values, dtype=object)}),
    }[frame]()
    with pytest.raises(SchemaMismatchError, match=words) as caught:
        trilake.write(data, str(tmp_path / "t"), format="trevni")
    assert str(caught.value.context["column"]).startswith("k" if frame == "dict" else "v")
    assert not (tmp_path / "t").exists()


def test_convertible_pandas_values_are_accepted(tmp_path: Path) -> None:
    midnight = _NAIVE.replace(hour=0)
    rows = pd.DataFrame({"d": pd.Series([midnight.date(), midnight], dtype=object), "t": [_ZONED, pd.NaT]})
    trilake.write(rows, str(tmp_path / "t"))
    found = trilake.open(str(tmp_path / "t")).to_arrow().to_pylist()
    assert found == [{"d": midnight.date(), "t": _ZONED}, {"d": midnight.date(), "t": None}]


@pytest.mark.parametrize(
    ("values", "kind"), [([object()], pl.Object), ([5], pl.Int128), ([5], pl.UInt128), ([[5]], pl.List(pl.Int128))]
)
def test_polars_only_types_are_rejected_by_column(tmp_path: Path, values: list[Any], kind: Any) -> None:
    rows = pl.DataFrame({"Object": pl.Series([{"Int128": 1}]), "v": pl.Series(values, dtype=kind)})
    with pytest.raises(SchemaMismatchError, match="of polars") as caught:
        trilake.write(rows, str(tmp_path / "t"))
    assert caught.value.context["column"] == "v"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("'170141183460469231731687303715884105727'::HUGEINT", "too large"),
        ("5::UHUGEINT", "UHUGEINT of DuckDB"),
        ("[5::UHUGEINT]", "UHUGEINT"),
        ("'0101'::BIT", "BIT of DuckDB"),
        ("'01:02:03+02'::TIMETZ", "TIME WITH TIME ZONE of DuckDB"),
    ],
)
def test_duckdb_only_types_are_rejected_by_column(tmp_path: Path, value: str, words: str) -> None:
    query = f"SELECT {{'BIT': 1}} AS \"UHUGEINT\", sum(7) AS n, {value} AS v"
    with pytest.raises(SchemaMismatchError, match=words) as caught:
        trilake.write(duckdb.connect().sql(query), str(tmp_path / "t"), format="trevni")
    assert caught.value.context["column"] == "v"
    trilake.write(duckdb.connect().sql(query).select("n"), str(tmp_path / "t"))
    assert trilake.open(str(tmp_path / "t")).to_arrow().to_pylist() == [{"n": 7}]


@pytest.mark.parametrize(
    "values",
    [
        pd.period_range("2020-01", periods=1, freq="M"),
        pd.arrays.IntervalArray.from_breaks([0, 1]),
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([2], pa.int8())),
        pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "money", "db"), pa.array(["x"])),
    ],
)
def test_types_with_other_storage_semantics_are_rejected(tmp_path: Path, values: Any) -> None:
    """Pandas periods were silently written as counts since 1970."""
    rows = pa.table({"v": values}) if isinstance(values, pa.Array) else pd.DataFrame({"v": values})
    with pytest.raises(SchemaMismatchError, match="would be misread") as caught:
        trilake.write(rows, str(tmp_path / "t"))
    assert caught.value.context["column"] == "v"
    trilake.write(rows, str(tmp_path / "t"), format="lance")
    assert trilake.open(str(tmp_path / "t")).to_arrow().column("v").type == pa.array(values).type


def test_named_pandas_index_becomes_a_column(tmp_path: Path) -> None:
    """Range indices were omitted, and so were indices with the name of a column."""
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(5, 7, name="k"))
    trilake.write(frame, str(tmp_path / "counted"))
    assert trilake.open(str(tmp_path / "counted")).to_arrow().to_pydict() == {"a": [1, 2], "k": [5, 6]}
    with pytest.raises(SchemaMismatchError, match="both named 'a'") as caught:
        trilake.write(frame.rename_axis("a"), str(tmp_path / "t"))
    assert caught.value.context["column"] == "a"
    trilake.write(frame.set_index("a", drop=False), str(tmp_path / "t"))
    assert trilake.open(str(tmp_path / "t")).to_arrow().to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize(
    "values",
    [np.array([1j]), np.array([1.5], "longdouble"), pd.arrays.SparseArray([0, 1]), pd.Series([2**70], dtype=object)],
)
def test_unsupported_pandas_columns_are_rejected_by_name(tmp_path: Path, values: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="cannot convert the values") as caught:
        trilake.write(pd.DataFrame({"v": values}), str(tmp_path / "t"))
    assert caught.value.context["column"] == "v"
    with pytest.raises(SchemaMismatchError, match="Duplicate"):
        trilake.write(pd.DataFrame([[1, 2]], columns=["a", "a"]), str(tmp_path / "t"))


def test_columns_with_non_string_names_keep_their_values(tmp_path: Path) -> None:
    for i, rows in enumerate(([{1: 2}, {1: 3, "a": 4}], {1: [2, 3], "a": [None, 4]})):
        trilake.write(rows, str(tmp_path / f"{i}"))
        assert trilake.open(str(tmp_path / f"{i}")).to_arrow().to_pydict() == {"1": [2, 3], "a": [None, 4]}
    with pytest.raises(SchemaMismatchError, match="two columns are named '1'"):
        trilake.write([{1: 2, "1": 3}], str(tmp_path / "t"))


_UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])])


@pytest.mark.parametrize(
    ("library", "values"),
    [
        ("pandas", pa.array([2**30], pa.int32()).cast(pa.date32())),
        ("pandas", pa.array([1], pa.time64("ns"))),
        ("pandas", _UNION),
        ("polars", _UNION),
        ("polars", pa.array([pa.MonthDayNano([1, 2, 3])])),
        ("polars", pa.array([1], pa.decimal256(50, 0))),
    ],
)
def test_unconvertible_columns_are_named(tmp_path: Path, library: str, values: pa.Array) -> None:
    trilake.write(pa.table({"k": [1], "v": values}), str(tmp_path / "t"), format="trevni")
    table = trilake.open(str(tmp_path / "t"))
    with pytest.raises(SchemaMismatchError, match=f"{library} does not support column 'v'") as caught:
        getattr(table, f"to_{library}")()
    assert caught.value.context["column"] == "v"
    assert len(getattr(table, f"to_{library}")(["k"])) == 1


def test_query_reads_sparse_unions_but_not_dense_ones(tmp_path: Path) -> None:
    numbers, words, kinds = pa.array([5, None]), pa.array([None, "x"]), pa.array([0, 1], pa.int8())
    sparse = pa.UnionArray.from_sparse(kinds, [numbers, words], ["a", "b"])
    assert trilake.sql("SELECT v FROM t", t=pa.table({"v": sparse})).to_pylist() == [{"v": 5}, {"v": "x"}]
    dense = pa.UnionArray.from_dense(kinds, pa.array([0, 0], pa.int32()), [numbers[:1], words[1:]], ["a", "b"])
    trilake.write(pa.table({"v": dense}), tmp_path / "t", format="trevni")
    with pytest.raises(InvalidArgumentError, match="Union"):
        trilake.sql(f"SELECT v FROM trevni.`{tmp_path / 't'}`")


@pytest.mark.parametrize(
    ("values", "exact"),
    [
        (pa.array([1], pa.duration("ns")), False),
        (pa.array([[1]], pa.list_(pa.duration("ns"))), False),
        (pa.array([2**40], pa.duration("s")), False),
        (pa.array([5_000], pa.duration("ns")), True),
        (pa.array([None], pa.duration("s")), True),
    ],
)
def test_duckdb_durations_match_the_table(tmp_path: Path, values: pa.Array, exact: bool) -> None:
    """DuckDB converted a duration of 1 ns to a negative interval of 34,000 years."""
    rows = pa.table({"k": [1], "v": values})
    trilake.write(rows, str(tmp_path / "t"), format="trevni")
    table, place = trilake.open(str(tmp_path / "t")), f"trevni.`{tmp_path / 't'}`"
    ways: list[Callable[[], Any]] = [
        lambda: table.to_duckdb(duckdb.connect()).to_arrow_table(),
        lambda: table.to_duckdb(duckdb.connect(), "k > 0").to_arrow_table(),
        lambda: trilake.sql(f"SELECT v FROM {place}"),
        lambda: trilake.sql("SELECT v FROM r", r=rows),
    ]
    for way in ways:
        if exact:
            want = [None] if values.null_count else [pa.MonthDayNano([0, 0, 5_000])]
            assert way().column("v").to_pylist() == want
        else:
            with pytest.raises((SchemaMismatchError, duckdb.Error), match="DuckDB does not support a value"):
                way()
    assert trilake.sql(f"SELECT k FROM {place}").to_pydict() == {"k": [1]}


def test_queries_keep_the_nanoseconds_of_instants(tmp_path: Path) -> None:
    trilake.write(pa.table({"v": pa.array([-1, 1_999], pa.timestamp("ns", "Asia/Tokyo"))}), tmp_path, format="lance")
    rows = trilake.sql(f"SELECT v FROM lance.`{tmp_path}`")
    assert rows.column("v").cast(pa.int64()).to_pylist() == [-1, 1_999]
