"""Files written by pylance, and the rows that it reads back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from trilake.lance.v2.file import V2File
from trilake.storage import open_store

Written = Callable[..., tuple[V2File, pa.Table]]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a table with pylance; returns the open file, and the table as pylance reads it."""
    number = iter(range(1 << 30))

    def write(table: pa.Table, version: str, **options: Any) -> tuple[V2File, pa.Table]:
        path = tmp_path / f"{next(number)}.lance"
        dataset = lance.write_dataset(table, path, data_storage_version=version, **options)
        (file,) = (path / "data").glob("*.lance")
        return V2File.open(open_store(str(path)), f"data/{file.name}"), dataset.to_table()

    return write
