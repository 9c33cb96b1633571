"""New tables of any format are never created among foreign files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.log import DeltaLog
from trilake.delta.metadata.write_schema import new_table
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.errors import ForeignFilesError, TableExistsError
from trilake.storage import open_store

ROWS = pa.table({"n": [1, 2]})
FORMATS = ("delta", "lance", "trevni")


def _files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _write(mode: str, format: str = "delta") -> Callable[[Path], Any]:
    return lambda place: trilake.write(ROWS, place, mode=mode, format=format)


def _clone(place: Path) -> None:
    trilake.write(ROWS, "memory://foreign-source", mode="overwrite")
    source = DeltaLog(open_store("memory://foreign-source"), standard_engine())
    clone(source.snapshot(), source, DeltaLog(open_store(place), standard_engine()))


def _convert_elsewhere(place: Path) -> None:
    parquet = place.parent / "parquet"
    parquet.mkdir()
    pq.write_table(ROWS, parquet / "a.parquet")
    trilake.convert_to_delta(parquet, target=place)


def _commit(place: Path) -> None:
    protocol, metadata = new_table(
        from_arrow(ROWS.schema), partition_by=(), properties=None, provider="parquet", runtime=SYSTEM_RUNTIME
    )
    commit(
        DeltaLog(open_store(place), standard_engine()),
        None,
        CommitPlan("X", {}, (), metadata=metadata, protocol=protocol),
    )


WAYS: dict[str, Callable[[Path], Any]] = {
    **{f"{f} {m}": _write(m, f) for f in FORMATS for m in ("error", "append", "overwrite")},
    "create": lambda place: trilake.create(place, {"n": "bigint"}),
    "create or replace": lambda place: trilake.create(place, {"n": "bigint"}, mode="create_or_replace"),
    "clone": _clone,
    "convert": _convert_elsewhere,
    "commit": _commit,
}
FOREIGN = ["a.parquet", "part-00000-0d2b1f6e-5c9a-4c57-9a37-6b1f6d1f0a11-c000.snappy.parquet", "b.csv", "p=1/c.json"]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("way", WAYS)
def test_creating_a_table_among_foreign_files_is_rejected(tmp_path: Path, way: str, name: str) -> None:
    place = tmp_path / "t"
    (place / name).parent.mkdir(parents=True)
    (place / name).write_bytes(b"theirs")
    (place / "_SUCCESS").write_bytes(b"")
    before = _files(place)
    with pytest.raises(ForeignFilesError) as caught:
        WAYS[way](place)
    assert isinstance(caught.value, TableExistsError)
    assert name in str(caught.value)
    assert "another folder" in str(caught.value)
    assert _files(place) == before


@pytest.mark.parametrize("way", [w for w in WAYS if not w.startswith("trevni")])
def test_hidden_files_do_not_block_table_creation(tmp_path: Path, way: str) -> None:
    place = tmp_path / "t"
    hidden = ["_SUCCESS", ".part-0.parquet.crc", "_temporary/0/x", ".trilake-0.tmp", ".git/config"]
    hidden += [] if way.startswith("lance") else ["_delta_log/.tmp", "_delta_log/_staged_commits/0.json"]
    for name in hidden:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"x")
    WAYS[way](place)
    trilake.open(place)
    assert all((place / name).exists() for name in hidden)


def test_log_without_commits_is_reported_as_damaged(tmp_path: Path) -> None:
    for name in ("_last_checkpoint", f"{3:020d}.crc", f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet"):
        place = tmp_path / name
        (place / "_delta_log").mkdir(parents=True)
        (place / "_delta_log" / name).write_bytes(b"x")
        with pytest.raises(ForeignFilesError, match="without a log"):
            trilake.write(ROWS, place, mode="append")


def test_failed_creation_can_be_retried_within_an_hour(tmp_path: Path) -> None:
    trilake.write(ROWS, tmp_path)
    (commit_file,) = (tmp_path / "_delta_log").iterdir()
    commit_file.unlink()
    (data,) = tmp_path.glob("*.parquet")
    os.utime(data, (data.stat().st_mtime - 7200,) * 2)
    with pytest.raises(ForeignFilesError, match="old failed write"):
        trilake.write(ROWS, tmp_path)
    os.utime(data)
    trilake.write(ROWS, tmp_path)
    assert trilake.open(tmp_path).count() == 2


@pytest.mark.parametrize("format", ["delta", "lance"])
def test_allow_foreign_files_permits_creation(tmp_path: Path, format: str) -> None:
    (tmp_path / "a.csv").write_text("1")
    trilake.write(ROWS, tmp_path, format=format, allow_foreign_files=True)
    assert trilake.open(tmp_path).count() == 2
    assert (tmp_path / "a.csv").exists()
    trilake.write(ROWS, tmp_path, format=format, mode="append")  # an existing table needs no permission


def test_tables_in_subfolders_do_not_block_creation(tmp_path: Path) -> None:
    for format in FORMATS[:2]:
        trilake.write(ROWS, tmp_path / format, format=format)
    trilake.write(ROWS, tmp_path)
    assert trilake.open(tmp_path / "lance").count() == 2


def test_trevni_overwrite_rejects_foreign_files(tmp_path: Path) -> None:
    trilake.write(ROWS, tmp_path, format="trevni")
    (tmp_path / "notes.txt").write_text("mine")
    for mode in ("append", "overwrite"):
        with pytest.raises(ForeignFilesError, match=r"notes\.txt is not a Trevni file"):
            trilake.write(ROWS, tmp_path, format="trevni", mode=mode)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "notes.txt").unlink()
    (file,) = tmp_path.glob("*.trv")
    file.rename(tmp_path / "named otherwise")
    trilake.write(ROWS, tmp_path, format="trevni", mode="overwrite")
    assert len(list(tmp_path.iterdir())) == 1
