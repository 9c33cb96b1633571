"""Maintenance statements on Lance datasets, in a session and without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError

Run = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(params=["with Spark", "without Spark"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "without Spark":
        return lambda statement: trilake.sql(statement).to_pylist()
    session: SparkSession = request.getfixturevalue("sql")
    return lambda statement: [row.asDict(recursive=True) for row in session.sql(statement).collect()]


@pytest.fixture
def path(tmp_path: Path) -> str:
    for n in range(3):
        trilake.write(pa.table({"n": [n]}), tmp_path, format="lance", mode="append")
    return str(tmp_path)


def test_versions_are_listed_restored_and_removed(run: Run, path: str) -> None:
    t = f"lance.`{path}`"
    assert [r["version"] for r in run(f"DESCRIBE HISTORY {t} LIMIT 2")] == [3, 2]
    [restored] = run(f"RESTORE {t} TO VERSION AS OF 1")
    assert restored["restored_version"] == 1
    assert trilake.open(path).to_arrow().to_pydict() == {"n": [0]}
    run(f"RESTORE TABLE {t} TO TIMESTAMP AS OF current_timestamp()")
    assert trilake.open(path).count() == 1
    assert run(f"VACUUM {t}") != [] != run(f"VACUUM {t} RETAIN 0 HOURS DRY RUN")
    run(f"OPTIMIZE {t}")
    run(f"VACUUM {t} RETAIN 0 HOURS")
    assert len(run(f"DESCRIBE HISTORY {t}")) == 1
    assert trilake.open(path).count() == 1


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("OPTIMIZE {} WHERE n = 1", "OPTIMIZE of lance tables does not support WHERE"),
        ("OPTIMIZE {} ZORDER BY (n)", "OPTIMIZE of lance tables does not support ZORDER BY"),
        ("VACUUM {} LITE", "VACUUM is only supported for Delta tables"),
        ("REORG TABLE {} APPLY (PURGE)", "REORG is only supported for Delta tables"),
    ],
)
def test_clauses_and_statements_of_delta_are_rejected(run: Run, path: str, statement: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        run(statement.format(f"lance.`{path}`"))


def test_trevni_tables_have_no_versions(run: Run, tmp_path: Path) -> None:
    trilake.write(pa.table({"n": [1]}), tmp_path, format="trevni")
    with pytest.raises(InvalidArgumentError, match="Trevni tables have no versions"):
        run(f"VACUUM trevni.`{tmp_path}`")
