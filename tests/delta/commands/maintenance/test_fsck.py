"""FSCK removes only missing files from the log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import trilake
from tests.delta.tables import opened
from trilake.delta.commands.maintenance.restore import fsck


def test_escaped_file_names_are_found(tmp_path: Path) -> None:
    trilake.write(pa.table({"n": [1, 2], "p": ["a b", "c%d"]}), tmp_path, partition_by="p")
    assert fsck(opened(tmp_path).log) == []
    assert opened(tmp_path).count() == 2


def test_missing_file_is_listed_then_removed_from_the_log(tmp_path: Path) -> None:
    trilake.write(pa.table({"n": [1, 2], "p": ["a b", "c"]}), tmp_path, partition_by="p")
    gone = next(p for p in opened(tmp_path).files()["path"].to_pylist() if "a" in p.split("/")[0])
    (tmp_path / gone).unlink()
    assert fsck(opened(tmp_path).log, dry_run=True) == [gone]
    assert opened(tmp_path).version == 0
    assert fsck(opened(tmp_path).log) == [gone]
    table = opened(tmp_path)
    assert table.to_arrow()["n"].to_pylist() == [2]
    assert table.history(1)["operation"].to_pylist() == ["FSCK"]
