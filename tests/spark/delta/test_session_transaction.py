"""Session settings for idempotent changes (application id and version)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.settings import APP_ID, AUTO_RESET, VERSION

Change = Callable[[SparkSession, str], object]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    for key in (APP_ID, VERSION, AUTO_RESET):
        spark.conf.unset(key)
    trilake.uninstall(spark)


@contextmanager
def _transaction_settings(spark: SparkSession, version: object, app: str = "nightly") -> Iterator[None]:
    spark.conf.set(APP_ID, app)
    spark.conf.set(VERSION, str(version))
    try:
        yield
    finally:
        spark.conf.unset(APP_ID)
        spark.conf.unset(VERSION)


def _table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    trilake.write({"id": [0, 1, 2, 3], "n": [0] * 4}, path)
    return path


def _total(path: str) -> tuple[int, int]:
    rows = trilake.open(path).to_arrow()
    return rows.num_rows, sum(rows["n"].to_pylist())


def _merge(spark: SparkSession, path: str) -> None:
    source = spark.range(3, 6).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    merge.whenMatchedUpdate(set={"n": "t.n + 1"}).whenNotMatchedInsert(values={"id": "s.id + 100", "n": "1"}).execute()


_EVERY: dict[str, Change] = {
    "INSERT": lambda s, p: s.sql(f"INSERT INTO delta.`{p}` VALUES (9L, 9L)"),
    "save": lambda s, p: s.sql("SELECT 9L AS id, 9L AS n").write.format("delta").mode("append").save(p),
    "UPDATE": lambda s, p: s.sql(f"UPDATE delta.`{p}` SET n = n + 1"),
    "update": lambda s, p: DeltaTable.forPath(s, p).update(set={"n": "n + 1"}),
    "DELETE": lambda s, p: s.sql(
        f"DELETE FROM delta.`{p}` WHERE id = (SELECT min(id) FROM delta.`{p}`)"
    ),  # a repetition would delete another row
    "MERGE": lambda s, p: s.sql(
        f"MERGE INTO delta.`{p}` t USING (SELECT 3L AS id, 5L AS n) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT *"
    ),
    "merge": _merge,
    "merge of all": lambda s, p: s.sql(
        f"MERGE INTO delta.`{p}` t USING (SELECT 77L AS id, 1L AS n) s ON false WHEN NOT MATCHED THEN INSERT *"
    ),
}


@pytest.mark.parametrize("way", list(_EVERY))
def test_repeated_change_is_applied_once(session: SparkSession, tmp_path: Path, way: str) -> None:
    path = _table(tmp_path)
    before = _total(path)
    with _transaction_settings(session, 1):
        _EVERY[way](session, path)
        once, version = _total(path), trilake.open(path).version
        assert once != before
        _EVERY[way](session, path)
        assert (_total(path), trilake.open(path).version) == (once, version)
    with _transaction_settings(session, 1, app="another"):
        _EVERY[way](session, path)
    assert _total(path) != once
    with _transaction_settings(session, 2):
        _EVERY[way](session, path)
    assert trilake.open(path).version == 3


@pytest.mark.parametrize(
    "statement", ["DELETE FROM delta.`{}` WHERE id = 50", "UPDATE delta.`{}` SET n = 5 WHERE id = 50"]
)
def test_change_without_rows_is_recorded(session: SparkSession, tmp_path: Path, statement: str) -> None:
    path = _table(tmp_path)
    with _transaction_settings(session, 1):
        session.sql(statement.format(path))
    session.sql(f"INSERT INTO delta.`{path}` VALUES (50L, 1L)")
    with _transaction_settings(session, 1):
        assert session.sql(statement.format(path)).collect()[0]["num_affected_rows"] == 0
    assert _total(path) == (5, 1)


def test_write_options_override_the_session(session: SparkSession, tmp_path: Path) -> None:
    path = _table(tmp_path)
    row = session.sql("SELECT 9L AS id, 9L AS n")
    with _transaction_settings(session, 5):
        row.write.format("delta").mode("append").option("txnAppId", "own").option("txnVersion", 1).save(path)
        row.write.format("delta").mode("append").save(path)
    assert _total(path) == (6, 18)


def test_auto_reset_clears_the_version(session: SparkSession, tmp_path: Path) -> None:
    path = _table(tmp_path)
    session.conf.set(AUTO_RESET, "true")
    for _ in range(2):  # applied, then skipped
        with _transaction_settings(session, 1):
            session.sql(f"INSERT INTO delta.`{path}` VALUES (9L, 9L)")
            assert session.conf.get(VERSION, None) is None
            with pytest.raises(AnalysisException, match="is set without") as found:
                session.sql(f"DELETE FROM delta.`{path}`")
            assert isinstance(found.value, InvalidArgumentError)
    assert _total(path) == (5, 9)


@pytest.mark.parametrize("version", ["seven", "-1", "1.5", str(1 << 63)])
def test_version_must_be_an_integer(session: SparkSession, tmp_path: Path, version: str) -> None:
    path = _table(tmp_path)
    with _transaction_settings(session, version), pytest.raises(AnalysisException, match="txnVersion must be"):
        session.sql(f"DELETE FROM delta.`{path}`")


def test_other_statements_are_not_affected(session: SparkSession, tmp_path: Path) -> None:
    path = _table(tmp_path)
    trilake.write({"id": [4], "n": [0]}, path, mode="append")
    with _transaction_settings(session, 1):
        session.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (more INT)")
        session.sql(f"OPTIMIZE delta.`{path}`")
        assert session.sql(f"SELECT count(*) FROM delta.`{path}`").collect()[0][0] == 5
        session.sql(f"DELETE FROM delta.`{path}` WHERE id = 0")
    assert trilake.open(path).count() == 4
