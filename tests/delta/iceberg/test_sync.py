"""Iceberg metadata of Delta tables, read back by pyiceberg."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import StaticTable
from pyiceberg.utils.config import Config

import trilake
from tests.delta.tables import opened
from trilake.delta import standard
from trilake.delta.iceberg.newest_metadata import newest_metadata
from trilake.delta.iceberg.sync import sync
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store

UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg", "delta.enableIcebergCompatV2": "true"}
TIME = pa.timestamp("us", "UTC")
COLUMNS: dict[str, pa.Array] = {
    "integer": pa.array([1, 2, None], pa.int32()),
    "short": pa.array([-1, 2, None], pa.int16()),
    "long": pa.array([1 << 40, -5, None], pa.int64()),
    "float": pa.array([-0.0, 1.5, None], pa.float32()),
    "double": pa.array([1e300, -2.5, None], pa.float64()),
    "string": pa.array(["a b/ü%", "b", None], pa.string()),
    "bool": pa.array([True, False, None], pa.bool_()),
    "date": pa.array([date(1969, 12, 31), date(2026, 2, 3), None], pa.date32()),
    "time": pa.array([datetime(1969, 1, 1, 1, 2, 3, 4, UTC), datetime(2026, 1, 1, 1, 1, 1, 999_999, UTC), None], TIME),
    "decimal": pa.array([Decimal("123456789012345678.91"), Decimal("-0.10"), None], pa.decimal128(20, 2)),
    "binary": pa.array([b"\x00\xff", b"x", None], pa.binary()),
}
COLUMNS["ntz"] = COLUMNS["time"].cast(pa.timestamp("us"))
NESTED: dict[str, pa.Array] = {
    "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array(
        [{"x": 1, "y": "a"}, {"x": None, "y": None}, None], pa.struct([("x", pa.int64()), ("y", pa.string())])
    ),
}


def iceberg(uri: str) -> StaticTable:
    number = newest_metadata(open_store(uri)).number
    return StaticTable.from_metadata(f"{uri}/metadata/v{number}.metadata.json")


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def check_all_versions(uri: str) -> None:
    """Each Iceberg snapshot has the rows of its Delta version."""
    table = iceberg(uri)
    versions = []
    for snapshot in table.metadata.snapshots:
        assert snapshot.summary is not None
        version = int(str(snapshot.summary["delta-version"]))
        expected = trilake.open(uri, version=version).to_arrow()
        actual = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert actual.column_names == expected.column_names
        assert sorted_rows(actual) == sorted_rows(expected)
        versions.append(version)
    assert versions == list(range(opened(uri).snapshot.version + 1))


@pytest.mark.parametrize("partition", [(), tuple(c for c in COLUMNS if c not in ("binary", "integer"))])
def test_pyiceberg_reads_rows_of_every_type(partition: tuple[str, ...], tmp_path: Path) -> None:
    uri = str(tmp_path)
    data = pa.table({**COLUMNS, **NESTED})
    trilake.write(data, uri, properties=UNIFORM, partition_by=list(partition))
    trilake.write(data.slice(0, 1), uri, mode="append")
    check_all_versions(uri)
    for column in ("long", "float", "string", "date", "time", "decimal"):
        assert iceberg(uri).scan(row_filter=IsNull(column)).to_arrow().num_rows == 1
        for value, count in zip(COLUMNS[column].to_pylist()[:2], (2, 1), strict=True):
            literal = value.isoformat() if isinstance(value, date) else value
            assert iceberg(uri).scan(row_filter=EqualTo(column, literal)).to_arrow().num_rows == count


def test_snapshots_follow_changes_of_rows_and_columns(tmp_path: Path) -> None:
    uri = str(tmp_path)
    trilake.write(
        {"id": [1, 2, 3], "p": ["x", "x", "y"], "s": ["a", "b", "c"]}, uri, properties=UNIFORM, partition_by="p"
    )
    opened(uri).delete("id = 1")
    opened(uri).update({"s": "'new'"}, where="id = 2")
    trilake.alter(uri).rename_column("s", "renamed")
    trilake.write({"id": [4], "p": ["z"], "renamed": ["d"]}, uri, mode="append")
    trilake.alter(uri).drop_columns("renamed")
    trilake.write({"id": [5], "p": [None], "added": [1.5]}, uri, mode="append", schema_mode="merge")
    opened(uri).restore(1)
    check_all_versions(uri)
    assert len({s.schema_id for s in iceberg(uri).metadata.snapshots}) > 3


def test_files_with_materialized_row_ids_have_field_ids(tmp_path: Path) -> None:
    uri = str(tmp_path)
    trilake.write({"n": [1, 2, 3]}, uri, properties={**UNIFORM, "delta.enableRowTracking": "true"})
    opened(uri).delete("n = 1")
    opened(uri).optimize()
    check_all_versions(uri)


def test_manifests_without_removed_files_are_carried_over(tmp_path: Path) -> None:
    uri = str(tmp_path)
    trilake.write({"n": [1]}, uri, properties=UNIFORM)
    for n in (2, 3):
        trilake.write({"n": [n]}, uri, mode="append")
    table = iceberg(uri)
    before = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    opened(uri).delete("n = 2")
    table = iceberg(uri)
    after = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    assert (len(before), len(after), len(before & after)) == (3, 3, 2)


def test_rewritten_manifests_keep_double_partitions_exact(tmp_path: Path) -> None:
    uri = str(tmp_path)
    rows = {"n": [1, 2, 3], "x": [0.1, 1e300, 0.1]}
    trilake.write(rows, uri, properties=UNIFORM, partition_by="x")
    opened(uri).delete("n = 1")
    table = iceberg(uri)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    values = set()
    for manifest in snapshot.manifests(table.io):
        with open(manifest.manifest_path.removeprefix("file://"), "rb") as file:
            entries = list(fastavro.reader(file))
        values |= {e["data_file"]["partition"]["x"] for e in entries if e["status"] != 2}
    assert values == {0.1, 1e300}


class RestCatalogue(BaseHTTPRequestHandler):
    """The part of Iceberg's REST protocol needed to register and load tables."""

    tables: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.answer({"defaults": {}, "overrides": {}} if path == "/v1/config" else self.table(path.rpartition("/")[2]))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/namespaces":
            return self.answer({**body, "properties": {}})
        assert self.path == "/v1/namespaces/ns/register"
        self.tables[body["name"]] = body["metadata-location"]
        return self.answer(self.table(body["name"]))

    def do_DELETE(self) -> None:
        del self.tables[urlsplit(self.path).path.rpartition("/")[2]]
        self.answer(None)

    def table(self, name: str) -> dict[str, Any]:
        location = self.tables[name]
        metadata = json.loads(Path(location.removeprefix("file://")).read_text())
        return {"metadata-location": location, "metadata": metadata, "config": {}}

    def answer(self, body: dict[str, Any] | None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(200 if data else 204)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        del args


@contextmanager
def catalogue(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog from pyiceberg's configuration."""
    with ExitStack() as stack:
        uri = f"sqlite:///{folder}/c.db"
        if kind == "rest":
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), RestCatalogue))
            Thread(target=server.serve_forever, args=(0.01,)).start()
            stack.callback(server.shutdown)
            uri = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        catalog = load_catalog("lake")
        stack.callback(catalog.close)
        yield catalog


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_tables_can_be_registered_in_a_catalogue(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"n": [1, 2]}, uri, properties=UNIFORM)
    with catalogue(kind, tmp_path, monkeypatch) as catalog:
        catalog.create_namespace("ns")
        for rows in ([1, 2], [1, 2, 3]):
            catalog.register_table(
                "ns.t", f"file://{uri}/metadata/v{newest_metadata(open_store(uri)).number}.metadata.json"
            )
            assert sorted(catalog.load_table("ns.t").scan().to_arrow()["n"].to_pylist()) == rows
            catalog.drop_table("ns.t")
            trilake.write({"n": [3]}, uri, mode="append")


def test_pyiceberg_reads_tables_in_object_stores(s3_options: Mapping[str, str]) -> None:
    uri, options = "s3://lake/uniform", dict(s3_options)
    rows = pa.table({"n": pa.array([1, 2, None]), "day": ["a b", "c", None]})
    trilake.write(rows, uri, partition_by=["day"], properties=UNIFORM, storage_options=options)
    trilake.write(rows, uri, mode="append", storage_options=options)
    trilake.open(uri, storage_options=options).delete("n = 1")
    properties = {
        "s3.endpoint": options["AWS_ENDPOINT_URL"],
        "s3.access-key-id": options["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": options["AWS_SECRET_ACCESS_KEY"],
        "s3.region": options["AWS_REGION"],
    }
    table = StaticTable.from_metadata(uri, properties)
    sizes = [table.scan(snapshot_id=s.snapshot_id).to_arrow().num_rows for s in table.metadata.snapshots]
    assert sizes == [3, 6, 4]
    expected = trilake.open(uri, storage_options=options).to_arrow()
    assert sorted_rows(table.scan().to_arrow()) == sorted_rows(expected)
    assert table.scan(row_filter=EqualTo("day", "c")).to_arrow()["n"].to_pylist() == [2, 2]
    assert trilake.verify(uri, storage_options=options).ok


def sort_columns(uri: str) -> list[str]:
    table = iceberg(uri)
    return [str(table.schema().find_column_name(f.source_id)) for f in table.sort_order().fields]


def test_clustering_columns_are_the_sort_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path)
    rows = {"id": [1, 2], "day": ["a", "b"], "at": [{"x": 1, "y": 2}] * 2}
    trilake.write(pa.table(rows), uri, properties=UNIFORM)
    trilake.alter(uri).cluster_by("day", "at.x")
    assert sort_columns(uri) == ["day", "at.x"]
    trilake.alter(uri).rename_column("day", "date")
    assert sort_columns(uri) == ["date", "at.x"]
    trilake.alter(uri).cluster_by("id")
    assert sort_columns(uri) == ["id"]
    with monkeypatch.context() as patch:
        patch.setattr(standard, "update_iceberg", lambda event: None)
        trilake.alter(uri).cluster_by("date", "at.x")
        trilake.write(pa.table({"id": [3], "date": ["c"], "at": [{"x": 1, "y": 2}]}), uri, mode="append")
    trilake.sync_iceberg(uri)
    assert sort_columns(uri) == ["date", "at.x"]
    trilake.alter(uri).cluster_by()
    assert sort_columns(uri) == []
    assert min(iceberg(uri).metadata.sort_orders, key=lambda o: o.order_id).is_unsorted
    assert len(iceberg(uri).metadata.sort_orders) == 3
    trilake.sync_iceberg(uri, rebuild=True)
    assert sorted(iceberg(uri).scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_commits_of_other_writers_are_caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path)
    trilake.write({"n": [1]}, uri, properties=UNIFORM)
    log = DeltaLog(open_store(uri), standard_engine())
    with monkeypatch.context() as patch:
        patch.setattr(standard, "update_iceberg", lambda event: None)
        opened(uri).delete("n = 1")
        trilake.write({"n": [2]}, uri, mode="append")
    assert newest_metadata(log.store).version == 0
    assert sync(log) == 2
    check_all_versions(uri)
    assert sync(log) == 2


def test_failed_conversion_does_not_fail_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path)
    trilake.write({"n": [1]}, uri, properties=UNIFORM)
    monkeypatch.delitem(sys.modules, "trilake.delta.iceberg.sync")
    monkeypatch.setitem(sys.modules, "pyiceberg.table.metadata", None)
    with caplog.at_level(logging.WARNING, "trilake.delta"):
        trilake.write({"n": [2]}, uri, mode="append")
    assert 'pip install "trilake[iceberg]"' in caplog.text
    monkeypatch.undo()
    trilake.write({"n": [3]}, uri, mode="append")
    check_all_versions(uri)


def test_moved_folder_is_converted_as_a_whole(tmp_path: Path) -> None:
    trilake.write({"n": [1]}, str(tmp_path / "a"), properties=UNIFORM)
    (tmp_path / "a").rename(tmp_path / "b")
    uri = str(tmp_path / "b")
    trilake.write({"n": [2]}, uri, mode="append")
    assert sorted(iceberg(uri).scan().to_arrow()["n"].to_pylist()) == [1, 2]


def test_uniform_requires_iceberg_compatibility() -> None:
    properties = {"delta.universalFormat.enabledFormats": "iceberg"}
    with pytest.raises(InvalidArgumentError, match="icebergCompatV1 or V2"):
        trilake.write({"n": [1]}, "memory://uniform-without-compat", properties=properties)


def test_vacuum_keeps_and_drop_deletes_iceberg_metadata(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"n": [1]}, uri, properties={**UNIFORM, "delta.deletedFileRetentionDuration": "interval 0 hours"})
    opened(uri).vacuum(0, dry_run=False, enforce_retention=False)
    assert iceberg(uri).scan().to_arrow()["n"].to_pylist() == [1]
    trilake.drop(uri)
    assert not Path(uri).exists() or not any(p.is_file() for p in Path(uri).rglob("*"))
