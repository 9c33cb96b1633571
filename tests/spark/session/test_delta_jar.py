"""Settings of delta-spark's jar, which is not installed: sessions work without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import trilake
from tests.connect_session import run_apart
from trilake.errors import UnsupportedSparkError
from trilake.spark.session import delta_jar
from trilake.spark.session.delta_jar import without_jar
from trilake.sql.spark import install

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
QUICKSTART = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (QUICKSTART, {}),
        ({"spark.sql.extensions": f" org.A ,{EXTENSION},org.B"}, {"spark.sql.extensions": "org.A,org.B"}),
        ({"spark.sql.catalog.a": CATALOG, "spark.sql.catalog.b": "org.B"}, {"spark.sql.catalog.b": "org.B"}),
        ({"spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0"}, {}),
        (
            {"spark.jars.packages": "io.delta:delta-core_2.12:2.4.0, io.delta:delta-sharing-spark_2.13:4.0.0"},
            {"spark.jars.packages": "io.delta:delta-sharing-spark_2.13:4.0.0"},
        ),
        ({"spark.app.name": "io.delta.sql.app", "a.b": False}, {"spark.app.name": "io.delta.sql.app", "a.b": False}),
    ],
    ids=["quickstart", "others stay", "catalogs", "package", "other packages stay", "other settings"],
)
def test_only_classes_of_the_jar_are_removed(settings: dict[str, Any], kept: dict[str, Any]) -> None:
    assert without_jar(settings) == kept


def test_session_removes_the_settings_of_the_jar(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def local(*args: Any, **more: Any) -> SparkSession:
        given.update(more)
        return spark

    monkeypatch.setattr(install, "local_session", local)
    install.session(**QUICKSTART)
    assert not set(QUICKSTART) & set(given)


@pytest.mark.parametrize("name", [CATALOG, "org.other.MissingCatalog"])
def test_running_session_drops_a_missing_catalog(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", name)
    trilake.install(session)
    session.sql("CREATE SCHEMA jarless")
    session.sql("CREATE TABLE jarless.t USING delta AS SELECT 1 AS id")
    assert session.table("jarless.t").count() == 1
    session.sql("DROP SCHEMA jarless CASCADE")
    trilake.uninstall(session)
    assert name in caplog.text


def test_remaining_setting_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", CATALOG)
    monkeypatch.setattr(delta_jar, "_loads", lambda *_: False)
    with pytest.raises(UnsupportedSparkError, match=r"remove the setting spark\.sql\.catalog\.spark_catalog"):
        trilake.register(session)


APART = """
import sys
from pyspark.sql import SparkSession
import trilake
from tests.spark.session.test_delta_jar import QUICKSTART
from trilake.spark.session.java import ensure_java
ensure_java()
settings = {**QUICKSTART, "spark.ui.enabled": "false", "spark.sql.warehouse.dir": f"file:{sys.argv[1]}"}
if sys.argv[2] == "connect":
    from tests.connect_session import connect_session
    spark = connect_session(**settings)
else:
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
trilake.install(spark)
spark.sql("CREATE SCHEMA jarless")
spark.sql("CREATE TABLE jarless.t USING delta AS SELECT 1 AS id")
other = spark.newSession()
other.sql("CREATE TABLE jarless.u USING delta AS SELECT * FROM jarless.t")
assert other.table("jarless.u").count() == 1
print("works")
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", pytest.param("connect", marks=pytest.mark.soak)])
def test_session_of_the_delta_quickstart_works(tmp_path: Path, kind: str) -> None:
    done = run_apart(APART, str(tmp_path), kind)
    assert "works" in done.stdout, done.stderr[-3000:]
