"""CONVERT TO DELTA of Iceberg tables that pyiceberg wrote."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform, Transform, VoidTransform
from pyiceberg.typedef import Record

import trilake
from trilake.delta.iceberg.source import metadata_files
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    TableNotFoundError,
)
from trilake.storage import open_store

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int64()),
        "s": ["a", "b b/%", None, "d"],
        "x": pa.array([1.5, float("nan"), None, -0.0], pa.float64()),
        "d": pa.array([dt.date(1969, 12, 31), dt.date(2026, 1, 1), None, dt.date(2026, 1, 1)]),
        "t": pa.array(
            [dt.datetime(1969, 1, 1, 1, 2, 3, 4, dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, None],
            pa.timestamp("us", "UTC"),
        ),
        "n": pa.array([dt.datetime(2026, 1, 1, 0, 0, 0, 999_999, dt.UTC), None, None, None], pa.timestamp("us")),
        "c": pa.array([Decimal("1.50"), Decimal("-2.25"), None, None], pa.decimal128(20, 2)),
        "l": pa.array([[1, None], [], None, None], pa.list_(pa.int64())),
        "st": pa.array([{"y": 1}, {"y": None}, None, None], pa.struct([("y", pa.int32())])),
        "m": pa.array([[("k", 1)], [], None, None], pa.map_(pa.string(), pa.int64())),
    }
)
Make = Callable[..., Table]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    catalog.create_namespace("ns")

    def build(rows: pa.Table, partition: dict[str, Transform[Any, Any]] | None = None, **properties: str) -> Table:
        table = catalog.create_table("ns.t", rows.schema, str(tmp_path / "t"), properties=properties)
        with table.update_spec() as update:
            for name, transform in (partition or {}).items():
                update.add_field(name, transform, f"{name}_part")
        table.append(rows)
        return table

    yield build
    catalog.close()


def by_repr(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("columns", [(), ("s",), ("id", "d", "t", "c"), ("n",)])
def test_rows_of_every_type_and_partition(make: Make, tmp_path: Path, version: str, columns: tuple[str, ...]) -> None:
    table = make(ROWS, dict.fromkeys(columns, IdentityTransform()), **{"format-version": version})
    before = {p: p.read_bytes() for p in tmp_path.rglob("t/**/*") if p.is_file()}
    done = trilake.convert_to_delta(str(tmp_path / "t"))
    assert (done.converted, done.num_records) == (True, 4)
    delta = trilake.open(str(tmp_path / "t"))
    assert by_repr(delta.to_arrow()) == by_repr(table.scan().to_arrow())
    for where, count in (("id = 2", 1), ("x > 2", 1), ("d = DATE '2026-01-01'", 2), ("c < 0", 1), ("s IS NULL", 1)):
        assert delta.count(where) == count
    assert {p: p.read_bytes() for p in before} == before
    assert trilake.verify(str(tmp_path / "t")).ok


def test_renamed_columns_and_removed_files(make: Make, tmp_path: Path) -> None:
    table = make(ROWS.select(["id", "s"]))
    table.append(ROWS.select(["id", "s"]).slice(0, 1))
    with table.update_schema() as update:
        update.rename_column("s", "renamed")
        update.delete_column("id")
        update.add_column("id", types.StringType())
    table.overwrite(pa.table({"renamed": ["new"], "id": ["x"]}))
    table.append(pa.table({"renamed": ["more"], "id": ["y"]}))
    trilake.convert_to_delta(str(tmp_path / "t"))
    delta = trilake.open(str(tmp_path / "t"))
    assert by_repr(delta.to_arrow()) == by_repr(table.scan().to_arrow())
    trilake.write({"renamed": ["delta"], "id": ["z"]}, str(tmp_path / "t"), mode="append")
    assert trilake.open(str(tmp_path / "t")).count() == 3


def test_old_names_are_read_by_id(make: Make, tmp_path: Path) -> None:
    table = make(ROWS.select(["id", "s"]))
    with table.update_schema() as update:
        update.rename_column("s", "id2")
    trilake.convert_to_delta(str(tmp_path / "t"))
    assert by_repr(trilake.open(str(tmp_path / "t")).to_arrow()) == by_repr(table.scan().to_arrow())


def test_void_transform_is_not_a_partition_column(make: Make, tmp_path: Path) -> None:
    table = make(ROWS, {"id": VoidTransform(), "s": IdentityTransform()})
    trilake.convert_to_delta(str(tmp_path / "t"))
    delta = trilake.open(str(tmp_path / "t"))
    assert isinstance(delta, ArrowDeltaTable)
    assert delta.snapshot.metadata.partition_columns == ("s",)
    assert by_repr(delta.to_arrow()) == by_repr(table.scan().to_arrow())


class DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def add_deletes(folder: Path, content: DataFileContent, rows: dict[str, Any], *, sequence: int = 2) -> None:
    """Add a snapshot with one more delete file, which pyiceberg (0.12) cannot write."""
    key = max(metadata_files(open_store(str(folder))).items(), key=lambda item: item[1])
    metadata = json.loads((folder / key[0]).read_text())
    table = StaticTable.from_metadata(f"file://{folder}/{key[0]}")
    parent = table.current_snapshot()
    assert parent is not None
    pq.write_table(pa.table(rows), folder / "data/deletes.parquet")
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{folder}/data/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    output = table.io.new_output(f"file://{folder}/metadata/deletes.avro")
    with DeleteManifest(table.spec(), table.schema(), output, 5, "deflate") as writer:
        status = ManifestEntryStatus.ADDED
        writer.add_entry(ManifestEntry.from_args(status=status, snapshot_id=5, data_file=file))
    listed = table.io.new_output(f"file://{folder}/metadata/list.avro")
    with write_manifest_list(2, listed, 5, parent.snapshot_id, sequence, "deflate") as lists:
        lists.add_manifests([*parent.manifests(table.io), writer.to_manifest_file()])
    snapshot = {**metadata["snapshots"][-1], "snapshot-id": 5, "manifest-list": listed.location}
    metadata["snapshots"].append({**snapshot, "sequence-number": sequence})
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = 5
    metadata["last-sequence-number"] = max(sequence, metadata["last-sequence-number"])
    (folder / f"metadata/{key[1] + 1:05d}-x.metadata.json").write_text(json.dumps(metadata))


def data_file(folder: Path) -> str:
    return f"file://{next(p for p in folder.rglob('data/*.parquet') if p.name != 'deletes.parquet')}"


@pytest.mark.parametrize(("positions", "sequence", "left"), [([0, 2], 2, [2, None]), ([0], 0, [1, 2, 3, None])])
def test_position_deletes_become_deletion_vectors(
    make: Make, tmp_path: Path, positions: list[int], sequence: int, left: list[int | None]
) -> None:
    make(ROWS.select(["id"]))
    folder = tmp_path / "t"
    rows = {"file_path": [data_file(folder)] * len(positions), "pos": positions}
    add_deletes(folder, DataFileContent.POSITION_DELETES, rows, sequence=sequence)
    done = trilake.convert_to_delta(str(folder))
    assert done.num_records == len(left)
    assert trilake.open(str(folder)).to_arrow()["id"].to_pylist() == left
    assert trilake.verify(str(folder)).ok


def test_file_without_live_rows_is_omitted(make: Make, tmp_path: Path) -> None:
    make(ROWS.select(["id"]))
    folder = tmp_path / "t"
    rows = {"file_path": [data_file(folder)] * 4, "pos": [0, 1, 2, 3]}
    add_deletes(folder, DataFileContent.POSITION_DELETES, rows)
    assert trilake.convert_to_delta(str(folder)).num_files == 0
    assert trilake.open(str(folder)).count() == 0


def equality_deletes(table: Table, folder: Path) -> None:
    del table
    add_deletes(folder, DataFileContent.EQUALITY_DELETES, {"id": [1]})


def other_spec(table: Table, folder: Path) -> None:
    del folder
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "s_part")
    table.append(ROWS.select(["id", "s"]))


def name_mapping(table: Table, folder: Path) -> None:
    pq.write_table(ROWS.select(["id", "s"]), folder / "data/added.parquet")
    table.add_files([f"file://{folder}/data/added.parquet"])


def without_ids(table: Table, folder: Path) -> None:
    pq.write_table(ROWS.select(["id", "s"]), data_file(folder).removeprefix("file://"))
    del table


def other_count(table: Table, folder: Path) -> None:
    file = data_file(folder).removeprefix("file://")
    pq.write_table(pq.read_table(file).slice(1), file)
    del table


def third_version(table: Table, folder: Path) -> None:
    file = next(p for p in folder.glob("metadata/00001-*.json"))
    content = {**json.loads(file.read_text()), "format-version": 3, "next-row-id": 8}
    (folder / "metadata/00009-x.metadata.json").write_text(json.dumps(content))
    del table


def uuids(table: Table, folder: Path) -> None:
    del folder
    with table.update_schema() as update:
        update.add_column("u", types.UUIDType())


def empty_partition(table: Table, folder: Path) -> None:
    other_spec(table, folder)
    table.overwrite(pa.table({"id": [1], "s": [""]}))


def two_newest(table: Table, folder: Path) -> None:
    file = next(p for p in folder.glob("metadata/00001-*.json"))
    file.with_name("00001-other.metadata.json").write_bytes(file.read_bytes())
    del table


def damaged(table: Table, folder: Path) -> None:
    del table
    (folder / "metadata/00009-x.metadata.json").write_text("{}")


def without_file(table: Table, folder: Path) -> None:
    del table
    Path(data_file(folder).removeprefix("file://")).unlink()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (equality_deletes, InvalidArgumentError, "equality deletes"),
        (other_spec, InvalidArgumentError, "several partition specs"),
        (name_mapping, InvalidArgumentError, "name mapping"),
        (without_ids, InvalidArgumentError, "no field ids"),
        (other_count, CorruptFileError, "3 rows"),
        (third_version, InvalidArgumentError, "format version 3"),
        (uuids, SchemaMismatchError, "uuid"),
        (empty_partition, InvalidArgumentError, "empty string"),
        (two_newest, InvalidArgumentError, "several newest"),
        (damaged, CorruptFileError, "00009"),
        (without_file, MissingFileError, "data"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_unsupported_iceberg_feature_is_rejected_by_name(
    make: Make, tmp_path: Path, change: Callable[[Table, Path], None], error: type[Exception], match: str
) -> None:
    change(make(ROWS.select(["id", "s"])), tmp_path / "t")
    with pytest.raises(error, match=match):
        trilake.convert_to_delta(str(tmp_path / "t"))
    assert not (tmp_path / "t/_delta_log").exists()


def test_sql_format_must_match_the_folder(make: Make, tmp_path: Path) -> None:
    make(ROWS.select(["id"]))
    with pytest.raises(InvalidArgumentError, match="is an Iceberg table"):
        trilake.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/t`")
    with pytest.raises(TableNotFoundError, match="no Iceberg metadata"):
        trilake.sql(f"CONVERT TO DELTA iceberg.`{tmp_path}/t/data`")
    trilake.sql(f"CONVERT TO DELTA iceberg.`{tmp_path}/t`")
    assert trilake.open(str(tmp_path / "t")).count() == 4


def test_log_elsewhere_references_the_files(make: Make, tmp_path: Path) -> None:
    table = make(ROWS, {"s": IdentityTransform()})
    trilake.convert_to_delta(str(tmp_path / "t"), target=str(tmp_path / "log"))
    assert not (tmp_path / "t/_delta_log").exists()
    assert by_repr(trilake.open(str(tmp_path / "log")).to_arrow()) == by_repr(table.scan().to_arrow())


def test_vacuum_keeps_the_iceberg_table(make: Make, tmp_path: Path) -> None:
    table = make(ROWS.select(["id"]))
    trilake.convert_to_delta(str(tmp_path / "t"))
    delta = trilake.open(str(tmp_path / "t"))
    assert isinstance(delta, ArrowDeltaTable)
    delta.vacuum(0, dry_run=False, enforce_retention=False)
    assert table.scan().to_arrow().num_rows == 4
