"""The public API without Spark: open, write, and table methods."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from trilake.errors import (
    FilterError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    UnknownOptionError,
    VersionNotFoundError,
)
from trilake.storage.memory import MemoryStore
from trilake.table.table import Table

DATA = pa.table({"n": [1, 2, 3], "s": ["a", "b", None], "p": ["x", "x", "y"]})


@pytest.fixture
def uri() -> str:
    return MemoryStore().uri


def _rows(table: Table, **kw: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(**kw).to_pylist(), key=repr)


# --- paths ------------------------------------------------------------------------------------------------------------


def test_memory(uri: str) -> None:
    trilake.write(DATA, uri)
    assert _rows(trilake.open(uri)) == DATA.to_pylist()
    assert trilake.open(uri).uri == uri


def test_paths_and_uris_name_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a table"
    trilake.write(DATA, folder)
    monkeypatch.chdir(tmp_path)
    spellings: list[str | Path] = [
        folder,
        os.fspath(folder),
        f"{folder}/",
        folder.as_uri(),
        f"file:{tmp_path}/a%20table",
        "a table",
    ]
    tables = [trilake.open(s) for s in spellings]
    assert {t.uri for t in tables} == {folder.as_uri()}
    assert all(t.count() == 3 for t in tables)


@pytest.mark.parametrize("place", ["", "ftp://x/y", "file://host/x", "s3:///x"])
def test_invalid_paths_are_rejected(place: str) -> None:
    for call in (lambda: trilake.open(place), lambda: trilake.write(DATA, place)):
        with pytest.raises(InvalidArgumentError):
            call()


def test_missing_table(tmp_path: Path, uri: str) -> None:
    for place in (tmp_path, tmp_path / "nothing", uri):
        with pytest.raises(TableNotFoundError, match="no Delta, Lance or Trevni table"):
            trilake.open(place)
        with pytest.raises(TableNotFoundError, match="Delta table"):
            trilake.open(place, format="delta")
    assert list(tmp_path.iterdir()) == []


def test_formats_and_options(uri: str) -> None:
    trilake.write(DATA, uri, format="DELTA")
    assert trilake.open(uri, format="Delta").format == "delta"
    for call in (lambda: trilake.open(uri, format="iceberg"), lambda: trilake.write(DATA, uri, format="iceberg")):
        with pytest.raises(InvalidArgumentError, match="use one of delta"):
            call()
    with pytest.raises(UnknownOptionError, match="colour"):
        trilake.open("s3://bucket/x", storage_options={"colour": "red"})


def test_versions(uri: str) -> None:
    trilake.write(DATA, uri)
    trilake.write(DATA, uri, mode="append")
    assert trilake.open(uri, version=0).count() == 3
    assert trilake.open(uri, timestamp="9999-01-01").version == 1
    with pytest.raises(VersionNotFoundError):
        trilake.open(uri, version=2)
    with pytest.raises(VersionNotFoundError):
        trilake.open(uri, timestamp="1999-01-01")
    with pytest.raises(InvalidArgumentError):
        trilake.open(uri, version=0, timestamp="9999-01-01")


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: DATA,
        lambda: DATA.to_batches()[0],
        lambda: DATA.to_batches(max_chunksize=1),
        lambda: pl.from_arrow(DATA),
        DATA.to_pandas,
        lambda: duckdb.from_arrow(DATA),
    ],
    ids=["table", "batch", "list", "polars", "pandas", "duckdb"],
)
def test_write_accepts_arrow_data(uri: str, make: Callable[[], Any]) -> None:
    assert trilake.write(make(), uri).rows_added == 3
    assert _rows(trilake.open(uri)) == DATA.to_pylist()


def test_streams_are_read_once_in_batches(uri: str) -> None:
    seen = []

    def batches() -> Any:
        for b in DATA.to_batches(max_chunksize=1):
            seen.append(b.num_rows)
            yield b

    trilake.write(pa.RecordBatchReader.from_batches(DATA.schema, batches()), uri)
    trilake.write(batches(), uri, mode="append")
    assert seen == [1] * 6
    assert trilake.open(uri).count() == 6


@pytest.mark.parametrize("data", [None, 5, "text", b"x", [], [1], pd.Series([1]).to_list()])
def test_unsupported_data_is_rejected(uri: str, data: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot write "):
        trilake.write(data, uri)


def test_categories_and_views_of_frames(uri: str) -> None:
    frame = pl.DataFrame({"c": pl.Series(["a", "b", "a"], dtype=pl.Categorical), "l": [[1], [], None]})
    trilake.write(frame, uri)
    trilake.write(pd.DataFrame({"c": pd.Categorical(["z"]), "l": [[5]]}), uri, mode="append")
    found = _rows(trilake.open(uri))
    assert [r["c"] for r in found] == ["a", "a", "b", "z"]


def test_append_of_frame_ignores_the_default_index(uri: str) -> None:
    trilake.write(pd.DataFrame({"n": [1, 2]}), uri)
    filtered = pd.DataFrame({"n": [1, 2, 3]}).query("n > 1")
    trilake.write(filtered, uri, mode="append")
    assert trilake.open(uri).to_arrow().schema.names == ["n"]
    assert trilake.open(uri).count() == 4


def test_conflicting_arguments_are_rejected(uri: str) -> None:
    for kw in (
        {"mode": "append", "replace_where": "p = 'x'"},
        {"mode": "overwrite", "replace_where": "p = 'x'", "partition_overwrite": "dynamic"},
        {"mode": "overwrite", "partition_overwrite": "sometimes"},
        {"mode": "sideways"},
    ):
        with pytest.raises(InvalidArgumentError):
            trilake.write(DATA, uri, **kw)  # type: ignore[arg-type]
    with pytest.raises(TableNotFoundError):
        trilake.open(uri)


def test_write_errors_are_typed(uri: str) -> None:
    trilake.write(DATA, uri, partition_by="p")
    with pytest.raises(TableExistsError) as exists:
        trilake.write(DATA, uri)
    assert exists.value.code == "TABLE_EXISTS"
    assert 'mode="append"' in str(exists.value)
    with pytest.raises(SchemaMismatchError, match="n"):
        trilake.write(DATA.set_column(0, "n", pa.array(["x"] * 3)), uri, mode="append")


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(uri: str) -> Table:
    trilake.write(DATA, uri, partition_by="p")
    return trilake.open(uri)


def test_table_properties(table: Table) -> None:
    assert isinstance(table, trilake.Table)
    assert (table.format, table.version) == ("delta", 0)
    assert table.schema == DATA.schema
    assert table.files().schema.names[:5] == ["path", "partition_values", "size", "modification_time", "num_records"]
    assert sorted(table.files()["num_records"].to_pylist()) == [1, 2]
    assert table.files("p = 'y'").num_rows == 1


def test_columns_and_filters(table: Table) -> None:
    assert _rows(table, columns=["S", "n"], filter="p = 'x' and n > 1") == [{"s": "b", "n": 2}]
    assert _rows(table, columns=["n"], filter=pc.field("s").is_null()) == [{"n": 3}]
    assert table.to_arrow(columns=["p", "n"]).schema.names == ["p", "n"]
    assert sum(b.num_rows for b in table.to_batches(filter="n >= 2")) == 2
    assert (table.count(), table.count("n > 5"), table.count("p = 'x'")) == (3, 0, 2)
    with pytest.raises(InvalidArgumentError, match="columns are n, s, p"):
        table.to_arrow(columns=["q"])
    with pytest.raises(FilterError):
        table.to_arrow(filter="q = 1")
    assert table.projected_schema(["S"]).names == ["s"]


def test_explain(table: Table) -> None:
    explained = table.explain("p = 'x' and n < 100")
    assert len(explained.kept) == len(explained.skipped) == 1
    text = str(explained)
    assert "1 of 2 kept, 1 skipped" in text
    assert "p = 'x' and n < 100" in text
    assert "p" in explained.files.filter(pc.invert(explained.files["kept"]))["reason"][0].as_py()
    assert "2 of 2 kept" in str(table.explain())


def test_table_repr(table: Table) -> None:
    assert repr(table).startswith(f"<Delta table {table.uri} version 0, 2 files partitioned by p; n: long")
    html = table._repr_html_()
    assert "<table>" in html
    assert "partition" in html


def test_names_are_escaped_in_html(uri: str) -> None:
    trilake.write(pa.table({"<b>&": [1]}), uri)
    html = trilake.open(uri)._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "<b>&" not in html


def test_repr_of_every_format_shows_columns(tmp_path: Path) -> None:
    for format in ("lance", "trevni"):
        path = tmp_path / format
        trilake.write(pa.table({"<n>": [1]}), path, format=format)
        shown = trilake.open(path)._repr_html_()
        assert f"{format.title()} table" in shown
        assert "&lt;n&gt;" in shown


def test_other_libraries_accept_the_table(table: Any) -> None:
    assert pl.DataFrame(table).sort("n")["n"].to_list() == [1, 2, 3]
    connection = duckdb.connect()
    connection.register("reader", pa.RecordBatchReader.from_stream(table))
    assert connection.sql("SELECT sum(n) FROM reader").fetchall() == [(6,)]
    assert pa.table(table).num_rows == 3
    assert sorted(pd.DataFrame.from_arrow(table)["n"]) == [1, 2, 3] if hasattr(pd.DataFrame, "from_arrow") else True


def test_open_table_is_a_snapshot(table: Any) -> None:
    trilake.write(DATA, table.uri, mode="append")
    assert (table.version, table.count()) == (0, 3)
    fresh = table.refresh()
    assert (fresh.version, fresh.count()) == (1, 6)
    assert fresh.to_arrow().num_rows == 6


def test_reading_can_be_closed_early(uri: str) -> None:
    for i in range(8):
        trilake.write(pa.table({"n": [i] * 1000}), uri, mode="append")
    batches = trilake.open(uri).to_batches()
    assert next(iter(batches)).num_rows > 0
    batches.close()  # type: ignore[attr-defined]


def test_all_errors_have_one_base_and_a_code(uri: str) -> None:
    with pytest.raises(TrilakeError) as e:
        trilake.open(uri)
    assert str(e.value).startswith("[TABLE_NOT_FOUND] ")
    assert e.value.context["file"] == uri


def test_opening_and_writing_import_no_spark() -> None:
    code = (
        "import sys, pyarrow as pa, trilake\n"
        "trilake.write(pa.table({'n': [1]}), 'memory://t')\n"
        "assert trilake.open('memory://t').to_arrow(filter='n = 1').num_rows == 1\n"
        "assert not [m for m in sys.modules if m.startswith('pyspark')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_create_table_with_column_rules() -> None:
    uri = MemoryStore().uri
    columns = {"id": "bigint", "s": "string", "n": "int", "twice": "int"}
    made = trilake.create(
        uri, columns, identity={"id": (10, 5)}, defaults={"s": "'none'"}, generated={"twice": "n * 2"}, comment="t"
    )
    assert made == 0
    assert trilake.create(uri, columns, mode="create_if_not_exists") == 0
    trilake.write(pa.table({"n": pa.array([1, 2], pa.int32())}), uri, mode="append")
    assert trilake.open(uri).to_arrow().to_pylist() == [
        {"id": 10, "s": "none", "n": 1, "twice": 2},
        {"id": 15, "s": "none", "n": 2, "twice": 4},
    ]
    for wrong in (
        {"generated": {"nope": "1"}},
        {"identity": ["id"], "defaults": {"ID": "1"}},
        {"identity_takes_values": True},
    ):
        with pytest.raises(InvalidArgumentError):
            trilake.create(MemoryStore().uri, columns, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        trilake.create(MemoryStore().uri, {"a.b": "int"})
    with pytest.raises(TableExistsError):
        trilake.create(uri, columns)
