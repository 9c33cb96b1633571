"""Rows of many kilobytes are written directly to a local disk."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.storage.local_files import files
from trilake.errors import StorageError
from trilake.storage import local_writer


def strings(rows: int, length: int) -> pa.Table:
    return pa.table({"id": range(rows), "s": [chr(97 + i % 26) * (length + i) for i in range(rows)]})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that Arrow itself opens for writing."""
    seen: list[str] = []
    real = pa.OSFile

    class Arrow:
        def __getattr__(self, name: str) -> Any:
            return getattr(pa, name)

        def OSFile(self, path: Any, mode: str) -> Any:
            seen.append(os.fsdecode(path))
            return real(path, mode)

    monkeypatch.setattr(local_writer, "pa", Arrow())
    return seen


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_rows_of_any_size_round_trip(tmp_path: Path, place: str, opened: list[str]) -> None:
    uri = str(tmp_path / "t") if place == "disk" else "memory://large-rows"
    trilake.write(strings(20, 100_000), uri)
    assert len(opened) == (place == "disk")
    trilake.write(strings(3, 400_000), uri, mode="append")
    trilake.write(strings(100, 100), uri, mode="append")
    table = trilake.open(uri)
    lengths = sorted(len(s) for s in table.to_arrow()["s"].to_pylist())
    assert lengths == sorted(
        [100_000 + i for i in range(20)] + [400_000 + i for i in range(3)] + [100 + i for i in range(100)]
    )
    assert len(opened) == 2 * (place == "disk")
    if place == "disk":
        sizes = dict(zip(table.files()["path"].to_pylist(), table.files()["size"].to_pylist(), strict=True))
        assert {p: (tmp_path / "t" / p).stat().st_size for p in sizes} == sizes
        assert [f for f in files(tmp_path) if ".trilake-" in f] == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("when", ["open", "first", "last"])
def test_failing_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, code: int) -> None:
    class Failing(io.RawIOBase):
        calls = 0

        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            self.calls += 1
            if when == "first" or (bytes(data[-4:]) == b"PAR1" and self.calls > 1):
                raise OSError(code, os.strerror(code))
            return len(data)

    class Arrow:
        def __getattr__(self, name: str) -> Any:
            return getattr(pa, name)

        def OSFile(self, path: Any, mode: str) -> Any:
            if when == "open":
                raise OSError(code, os.strerror(code))
            return pa.PythonFile(Failing(), "w")

    with monkeypatch.context() as patched:
        patched.setattr(local_writer, "pa", Arrow())
        with pytest.raises(StorageError, match="cannot write the file") as caught:
            trilake.write(strings(20, 100_000), tmp_path / "t")
    assert (code != errno.ENOSPC) or "free some space" in str(caught.value)
    assert files(tmp_path) == []
    trilake.write(strings(20, 100_000), tmp_path / "t")
    assert trilake.open(tmp_path / "t").to_arrow().num_rows == 20
