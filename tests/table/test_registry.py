"""The registry: another package adds a format by an entry point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

import trilake
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr import parse_filter
from trilake.spark.patches import formats
from trilake.spark.session.format import spark_format_named
from trilake.storage.base import Store
from trilake.table import registry
from trilake.table.format import Format, TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import Table

_KEY = "rows.tiny"


class TinyTable(Table):
    """The rows of one CSV file."""

    format = "tiny"
    version = None

    def __init__(self, store: Store) -> None:
        if store.find(_KEY) is None:
            raise TableNotFoundError("no tiny file found", file=store.uri)
        self.uri = store.uri
        self._rows = csv.read_csv(pa.BufferReader(store.read(_KEY)))

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def to_batches(self, columns: Sequence[str] | None = None, filter: Any = None) -> Iterator[pa.RecordBatch]:
        where = parse_filter(filter, self.schema)
        rows = self._rows if where is None else self._rows.filter(where.mask(self._rows))
        return iter((rows if columns is None else rows.select(columns)).to_batches())

    def count(self, filter: Any = None) -> int:
        return sum(batch.num_rows for batch in self.to_batches(filter=filter))

    def _unused(self, *args: Any) -> Any:
        raise NotImplementedError

    files = history = explain = _unused


class TinyFormat(Format):
    name = "tiny"

    def detect(self, store: Store) -> bool:
        return store.find(_KEY) is not None

    def open(self, store: Store, version: int | None, timestamp: Any) -> Table:
        return TinyTable(store)

    def write(self, store: Store, data: Any, write: TableWrite) -> WriteResult:
        self.reject_log_only(write)
        before = [TinyTable(store).to_arrow()] if write.mode == "append" and self.detect(store) else []
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.concat_tables([*before, data]), sink)
        store.put(_KEY, sink.getvalue())
        return WriteResult(None, rows_added=data.num_rows)

    def _unused(self, *args: Any) -> Any:
        raise NotImplementedError

    store_of = verify = report_facts = source = target = upkeep = table_files = _unused


TINY = TinyFormat()
ROW = registry.FormatRow("tiny", f"{__name__}:TINY")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder for a table, while a distribution with the format is installed."""
    info = tmp_path / "site" / "tiny-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\ntiny = {__name__}:ROW\n")
    monkeypatch.syspath_prepend(info.parent)
    registry._others.cache_clear()
    yield str(tmp_path / "t")
    registry._others.cache_clear()


def test_another_package_adds_a_format(place: str) -> None:
    assert registry.names() == ["delta", "lance", "tiny", "trevni"]
    trilake.write(pa.table({"n": [1, 2]}), place, format="tiny")
    table = trilake.open(place)
    assert (table.format, table.version, table.to_arrow(filter="n > 1").to_pydict()) == ("tiny", None, {"n": [2]})
    with pytest.raises(InvalidArgumentError, match="needs a table with a log, but tiny tables have none"):
        trilake.write(pa.table({"n": [3]}), place, format="tiny", replace_where="n = 1")


def test_sql_needs_no_more_than_the_format(place: str) -> None:
    t = f"tiny.`{place}`"
    trilake.sql(f"CREATE TABLE {t} AS SELECT 1 AS n, 'a' AS s")
    trilake.sql(f"INSERT INTO {t} (n) VALUES (2)")
    assert trilake.sql(f"SELECT sum(n) AS n FROM {t}").to_pylist() == [{"n": 3}]
    described = [(r["col_name"], r["data_type"]) for r in trilake.sql(f"DESCRIBE {t}").to_pylist()]
    assert described == [("n", "bigint"), ("s", "string")]
    with pytest.raises(InvalidArgumentError, match=r"DELETE needs a Delta table, but tiny.* is a tiny table"):
        trilake.sql(f"DELETE FROM {t}")


def test_spark_leaves_out_a_format_without_an_adapter_for_it(place: str) -> None:
    """A session could not be prepared while such a format was installed."""
    formats.sources.cache_clear()
    assert {source.name() for source in formats.sources()} >= {"delta", "lance", "trevni"}
    with pytest.raises(InvalidArgumentError, match="tiny tables cannot be read or written by Spark"):
        spark_format_named("tiny")
