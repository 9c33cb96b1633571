"""Fixtures: a dataset URI, and a dataset of a hundred rows there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lance.pylance.known import TABLE
from trilake import lance
from trilake.lance import LanceDataset


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    return tmp_path / "t.lance"


@pytest.fixture
def dataset(uri: Path) -> LanceDataset:
    return lance.write_dataset(TABLE, uri)
