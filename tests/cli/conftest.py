"""Tables that the commands are run on."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trilake

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "kind": ["a", "a", "b"], "x": [0.5, float("nan"), None]})


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("cli") / "delta")
    feed = {"delta.enableChangeDataFeed": "true"}
    trilake.write(ROWS, place, partition_by="kind", properties=feed, user_metadata="first")
    trilake.open(place).delete("id = 2")
    return place


@pytest.fixture(scope="module")
def lance(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("cli") / "lance")
    trilake.write(ROWS.select(["id", "kind"]), place, format="lance")
    trilake.write(ROWS.select(["id", "kind"]), place, format="lance", mode="append")
    return place


@pytest.fixture(scope="module")
def trevni(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("cli") / "trevni")
    trilake.write(ROWS, place, format="trevni", partition_by="kind")
    return place
