"""Datasets by their names in a catalog, with pylance's own client."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance as pylance
import lance_namespace
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, MissingDependencyError, UnsupportedProtocolError
from trilake.lance.pylance.catalog import located

ROWS = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def client(tmp_path: Path) -> Any:
    return lance_namespace.connect("dir", {"root": str(tmp_path)})


def answering(tmp_path: Path, **answer: Any) -> Any:
    """A client that always returns the same answer."""
    answer = {"location": str(tmp_path / "t"), "storage_options": None, "managed_versioning": None, **answer}
    return SimpleNamespace(describe_table=lambda request: SimpleNamespace(**answer))


@pytest.mark.parametrize(("writer", "reader"), [(lance, pylance), (pylance, lance)])
def test_tables_of_a_catalog_are_shared_with_pylance(client: Any, writer: Any, reader: Any) -> None:
    named = {"namespace_client": client, "table_id": ["t"]}
    writer.write_dataset(ROWS, mode="create", **named)
    writer.write_dataset(ROWS, mode="append", **named)
    assert client.list_tables(lance_namespace.ListTablesRequest(id=[])).tables == ["t"]
    assert reader.dataset(**named).to_table()["a"].to_pylist() == [1, 2, 3] * 2
    reader.write_dataset(ROWS, mode="overwrite", **named)
    assert writer.dataset(**named).to_table() == ROWS
    assert writer.dataset(**named, version=2).count_rows() == 6
    with pytest.raises(Exception, match="exists"):
        writer.write_dataset(ROWS, **named)


def test_storage_options_of_the_catalog_take_precedence(tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "t")
    client = answering(tmp_path, storage_options={"profile": "catalog", "expires_at_millis": "1"})
    later = {"namespace_client": client, "table_id": ["t"], "session": None}
    found = located(None, {"profile": "mine", "region": "eu"}, later)
    assert found == (str(tmp_path / "t"), {"profile": "catalog", "region": "eu"})
    assert later == {"session": None}
    assert lance.dataset(namespace_client=answering(tmp_path), table_id=["t"]).to_table() == ROWS


def test_a_dataset_has_either_a_uri_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = answering(tmp_path)
    for wrong in (
        {},
        {"namespace_client": client},
        {"table_id": ["t"]},
        {"uri": "t", "namespace_client": client, "table_id": ["t"]},
        {"uri": "t", "table_id": ["t"]},
    ):
        with pytest.raises(InvalidArgumentError, match="either uri, or both"):
            lance.dataset(**wrong)
        with pytest.raises(InvalidArgumentError, match="either uri, or both"):
            lance.write_dataset(ROWS, **wrong)
    named = {"table_id": ["db", "t"]}
    with pytest.raises(InvalidArgumentError, match=r"no location for table 'db\.t'"):
        lance.dataset(namespace_client=answering(tmp_path, location=None), **named)
    with pytest.raises(UnsupportedProtocolError, match=r"manages the versions of table 'db\.t'"):
        lance.dataset(namespace_client=answering(tmp_path, managed_versioning=True), **named)
    with pytest.raises(InvalidArgumentError, match="namespace_client"):
        lance.write_dataset(ROWS, tmp_path / "t").commit(tmp_path / "t", None, namespace_client=client)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "lance_namespace", None)
    with pytest.raises(MissingDependencyError, match="lance-namespace"):
        lance.dataset(namespace_client=client, table_id=["t"])
