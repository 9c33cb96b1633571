"""``LanceDataset.sql``; expected rows are from pylance 14.0.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, TableNotFoundError, TrilakeError
from trilake.lance import LanceDataset

ROWS = pa.table({"id": [1, 2, 3, 4], "s": ["ab", "b", None, "ad"], "x": [1.5, 2.5, 3.5, 4.5]})


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2)


def rows(builder: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = builder.build().to_stream_reader().read_all().to_pylist()
    return found


def test_sql_reads_the_dataset_by_any_name(dataset: LanceDataset) -> None:
    assert rows(dataset.sql("SELECT id, s FROM dataset WHERE id > 2")) == [{"id": 3, "s": None}, {"id": 4, "s": "ad"}]
    assert rows(dataset.sql("SELECT count(*) AS n FROM DataSet")) == [{"n": 4}]
    pairs = dataset.sql("SELECT a.id FROM dataset a JOIN dataset b ON a.id = b.id + 1 ORDER BY 1")
    assert rows(pairs) == [{"id": 2}, {"id": 3}, {"id": 4}]
    for name in ("t", "text", "frames", "self"):
        assert rows(dataset.sql(f"WITH u AS (SELECT max(x) AS m FROM {name}) FROM u").table_name(name)) == [{"m": 4.5}]
    query = dataset.sql("SELECT id FROM dataset ORDER BY id").batch_size(3).build()
    assert [b.to_pydict() for b in query.to_batch_records()] == [{"id": [1, 2, 3]}, {"id": [4]}]
    assert [b.num_rows for b in query.to_stream_reader()] == [3, 1]
    none = dataset.sql("SELECT id FROM dataset WHERE id > 100").build()
    assert none.to_stream_reader().schema == pa.schema([("id", pa.int64())])


def test_query_reads_the_opened_version(dataset: LanceDataset) -> None:
    before = dataset.sql("SELECT count(*) AS n FROM dataset")
    dataset.delete("id = 1")
    assert rows(before) == [{"n": 4}]
    assert rows(dataset.sql("SELECT count(*) AS n FROM dataset")) == [{"n": 3}]


def test_row_ids_and_addresses(dataset: LanceDataset) -> None:
    dataset.delete("id = 1")
    found = dataset.sql("SELECT id, _rowid FROM dataset").with_row_id().build().to_table()
    assert found.to_pydict() == {"id": [2, 3, 4], "_rowid": [1, 1 << 32, (1 << 32) + 1]}
    assert found.schema.field("_rowid").type == pa.uint64()
    assert dataset._take_rows(found["_rowid"], ["id"])["id"].to_pylist() == [2, 3, 4]
    both = dataset.sql("SELECT * FROM dataset WHERE _rowid > 1 AND id < 4").with_row_id().with_row_addr()
    assert rows(both) == [{"id": 3, "s": None, "x": 3.5, "_rowid": 1 << 32, "_rowaddr": 1 << 32}]
    assert rows(dataset.sql("SELECT _rowaddr AS at FROM dataset WHERE id = 2").with_row_addr()) == [{"at": 1}]
    with pytest.raises(InvalidArgumentError, match="_rowid"):
        rows(both.with_row_id(False))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("SELECT nope FROM dataset", InvalidArgumentError, "nope"),
        ("SELECT id", InvalidArgumentError, "id"),
        ("SELECT id FROM other", TableNotFoundError, "other"),
        ("DELETE FROM dataset", InvalidArgumentError, "not a query"),
        ("CREATE TABLE delta.`memory://no-such` (id INT)", InvalidArgumentError, "not a query"),
        ("VACUUM delta.`memory://no-such`", InvalidArgumentError, "not a query"),
        ("selec", InvalidArgumentError, "selec"),
        ("SELECT (1", TrilakeError, "SQL|query"),
        ("", TrilakeError, "SQL|query|statement"),
    ],
)
def test_invalid_queries_are_rejected(dataset: LanceDataset, text: str, kind: type[TrilakeError], message: str) -> None:
    with pytest.raises(kind, match=message):
        dataset.sql(text).build().to_batch_records()


def test_invalid_arguments_of_sql_are_rejected(dataset: LanceDataset) -> None:
    with pytest.raises(TypeError, match="sql must be a string"):
        dataset.sql(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="table name must be"):
        dataset.sql("SELECT 1").table_name("")
    with pytest.raises(ValueError, match="batch_size"):
        dataset.sql("SELECT 1").batch_size(0)
