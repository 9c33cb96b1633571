"""Session settings that affect stored data are honoured or rejected, never ignored."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.delta.log.clustering import clustering_columns
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.settings import (
    DEFAULTS,
    LAST_VERSION,
    OVERWRITE_MODE,
    PREFIX,
    SETTINGS,
    USER_METADATA,
    is_ansi,
    session_log,
    setting_of,
)
from trilake.spark.session.settings import session_flag
from trilake.storage.memory import MemoryStore


@contextmanager
def _set(spark: SparkSession, **settings: str) -> Iterator[None]:
    named = {k if k.startswith("spark.") else PREFIX + k: v for k, v in settings.items()}
    for key, value in named.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in named:
            spark.conf.unset(key)


def _frame(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), "p string, n int")


def _rows(path: str) -> list[tuple[str, int]]:
    return sorted((r["p"], r["n"]) for r in trilake.open(path).to_arrow().to_pylist())


@pytest.mark.parametrize("way", ["save", "insertInto", "saveAsTable", "write"])
def test_dynamic_overwrite_keeps_other_partitions(session: SparkSession, tmp_path: Path, way: str) -> None:
    path = str(tmp_path / "t")
    all_rows, new = _frame(session, ("a", 1), ("b", 2)), _frame(session, ("a", 7))
    all_rows.write.format("delta").option("path", path).partitionBy("p").saveAsTable("settings_t")
    try:
        with _set(session, **{OVERWRITE_MODE: "dynamic"}):
            if way == "save":
                new.write.format("delta").mode("overwrite").save(path)
            elif way == "insertInto":
                new.write.insertInto("settings_t", overwrite=True)
            elif way == "saveAsTable":
                new.write.format("delta").mode("overwrite").saveAsTable("settings_t")
            else:
                trilake.write(new, path, mode="overwrite")
            assert _rows(path) == [("a", 7), ("b", 2)]
            # The option overrides the session.
            new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static").save(path)
            assert _rows(path) == [("a", 7)]
    finally:
        session.sql("DROP TABLE settings_t")


def test_dynamic_overwrite_with_replace_where(session: SparkSession, tmp_path: Path) -> None:
    path, flat = str(tmp_path / "t"), str(tmp_path / "flat")
    all_rows, new = _frame(session, ("a", 1), ("b", 2)), _frame(session, ("a", 7))
    trilake.write(all_rows, path, partition_by="p")
    trilake.write(all_rows, flat)
    with _set(session, **{OVERWRITE_MODE: "dynamic"}):
        new.write.format("delta").mode("overwrite").option("replaceWhere", "p = 'a'").save(path)
        assert _rows(path) == [("a", 7), ("b", 2)]
        with pytest.raises(AnalysisException, match="partitionOverwriteMode"):
            new.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
        new.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(flat)
        assert _rows(flat) == [("a", 7)]
        with _set(session, **{"dynamicPartitionOverwrite.enabled": "false"}):
            new.write.format("delta").mode("overwrite").save(path)
        assert _rows(path) == [("a", 7)]


def test_commits_carry_the_session_user_metadata(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with _set(session, **{USER_METADATA: "job 7"}):
        _frame(session, ("a", 1), ("b", 2)).write.format("delta").save(path)
        _frame(session, ("c", 3)).write.format("delta").mode("append").option("userMetadata", "mine").save(path)
        table = DeltaTable.forPath(session, path)
        table.update("n = 1", {"n": "5"})
        table.delete("n = 2")
        source = _frame(session, ("c", 9))
        table.alias("t").merge(source.alias("s"), "t.p = s.p").whenMatchedUpdateAll().execute()
        table.optimize().executeCompaction()
        table.addFeatureSupport("domainMetadata")
    notes = trilake.open(path).history()["userMetadata"].to_pylist()[::-1]
    assert len(notes) >= 6
    assert notes == ["job 7", "mine", *["job 7"] * (len(notes) - 2)]


def test_new_tables_get_session_default_properties(session: SparkSession, tmp_path: Path) -> None:
    path, built, old = str(tmp_path / "t"), str(tmp_path / "built"), str(tmp_path / "old")
    df = _frame(session, ("a", 1))
    df.write.format("delta").save(old)
    with _set(session, **{DEFAULTS + "appendOnly": "true", DEFAULTS + "logRetentionDuration": "interval 3 days"}):
        df.write.format("delta").option("delta.appendOnly", "false").save(path)
        DeltaTable.create(session).location(built).addColumn("n", "int").execute()
        df.write.format("delta").mode("append").save(old)
    found = {p: trilake.open(p).metadata.configuration for p in (path, built, old)}  # type: ignore[attr-defined]
    assert found[path] == {"delta.appendOnly": "false", "delta.logRetentionDuration": "interval 3 days"}
    assert found[built] == {"delta.appendOnly": "true", "delta.logRetentionDuration": "interval 3 days"}
    assert found[old] == {}
    with _set(session, **{DEFAULTS + "apendOnly": "true"}), pytest.raises(AnalysisException, match="apendOnly"):
        df.write.format("delta").save(str(tmp_path / "typo"))


def test_session_merges_schemas(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    wide = _frame(session, ("b", 2)).withColumn("more", F.lit(1.5))
    _frame(session, ("a", 1)).write.format("delta").save(path)
    with _set(session, **{"schema.autoMerge.enabled": "true"}):
        with pytest.raises(AnalysisException, match="mergeSchema"):
            wide.write.format("delta").mode("append").option("mergeSchema", "false").save(path)
        wide.write.format("delta").mode("append").save(path)
    assert trilake.open(path).schema.names == ["p", "n", "more"]


@pytest.mark.parametrize("sql", [True, False])
def test_session_allows_rows_outside_of_replace_where(session: SparkSession, tmp_path: Path, sql: bool) -> None:
    path = str(tmp_path / "t")
    _frame(session, ("a", 1), ("a", 2), ("b", 3)).write.format("delta").partitionBy("p").save(path)

    def replaced(where: str, *rows: tuple[str, int]) -> None:
        df = _frame(session, *rows)
        if sql:
            df.createOrReplaceTempView("new_rows")
            session.sql(f"INSERT INTO delta.`{path}` REPLACE WHERE {where} SELECT * FROM new_rows")
        else:
            df.write.format("delta").mode("overwrite").option("replaceWhere", where).save(path)

    trilake.install(session)
    try:
        with pytest.raises(AnalysisException, match="violates"):
            replaced("p = 'a'", ("b", 9))
        with _set(session, **{"replaceWhere.constraintCheck.enabled": "false"}):
            replaced("p = 'a'", ("b", 9))
        assert _rows(path) == [("b", 3), ("b", 9)]
        with _set(session, **{"replaceWhere.dataColumns.enabled": "false"}):
            with pytest.raises(
                AnalysisException, match="replaceWhere uses n, but this session only allows partition columns"
            ):
                replaced("n = 3", ("b", 3))
            replaced("p = 'b'", ("b", 4))
        assert _rows(path) == [("b", 4)]
    finally:
        session.catalog.dropTempView("new_rows")
        trilake.uninstall(session)


_REJECTED = (
    ("schema.typeCheck.enabled", "false"),
    ("generatedColumn.allowNullable", "false"),
)


def test_unsupported_settings_are_rejected_before_writing(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    df = _frame(session, ("a", 1))
    for name, value in _REJECTED:
        with _set(session, **{name: value}), pytest.raises(AnalysisException, match=name) as found:
            df.write.format("delta").save(path)
        assert isinstance(found.value, InvalidArgumentError)
    with _set(session, **{"schema.typeCheck.enabled": "true", "merge.repartitionBeforeWrite.enabled": "true"}):
        df.write.format("delta").save(path)
    for write in (df.write.bucketBy(2, "n"), df.write.bucketBy(2, "n").sortBy("n")):
        with pytest.raises(AnalysisException, match="bucketBy"):
            write.format("delta").mode("append").save(path)
    with pytest.raises(AnalysisException, match="bucketBy"):
        df.write.bucketBy(2, "n").format("delta").saveAsTable("settings_buckets")
    with pytest.raises(AnalysisException, match="clusterBy"):
        df.write.clusterBy("n").format("lance").mode("append").save(str(tmp_path / "l"))


def _number_types(path: str) -> list[str]:
    return [str(f.type) for f in trilake.open(path).schema]


@pytest.mark.parametrize(
    ("value", "types"),
    [
        (None, ["int64", "double", "decimal128(20, 0)"]),
        ("ALWAYS", ["int64", "double", "decimal128(20, 0)"]),
        ("same_family_type", ["int64", "int32", "int32"]),
        ("never", ["int32", "int32", "int32"]),
    ],
)
def test_automatic_widening(session: SparkSession, tmp_path: Path, value: str | None, types: list[str]) -> None:
    """The setting was rejected, and types were never widened to another kind of number: 1.5 was stored as 1."""
    trilake.install(session)
    rows = session.sql("SELECT 1L AS a, 1.5D AS b, CAST(2 AS DECIMAL(20, 0)) AS c")
    rows.createOrReplaceTempView("wide_rows")
    settings = {} if value is None else {"typeWidening.allowAutomaticWidening": value}
    try:
        for how in ("insertInto", "INSERT", "MERGE"):
            path = str(tmp_path / how)
            session.sql(
                f"CREATE TABLE delta.`{path}` (a INT, b INT, c INT) USING delta"
                " TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
            )
            with _set(session, **settings, **{"schema.autoMerge.enabled": "true"}):
                if how == "insertInto":
                    session.sql(f"CREATE TABLE widened USING delta LOCATION '{path}'")
                    rows.write.insertInto("widened")
                elif how == "INSERT":
                    session.sql(f"INSERT INTO delta.`{path}` SELECT * FROM wide_rows")
                else:
                    session.sql(
                        f"MERGE INTO delta.`{path}` t USING wide_rows s ON false WHEN NOT MATCHED THEN INSERT *"
                    )
            assert _number_types(path) == types
            [row] = session.read.format("delta").load(path).collect()
            assert list(row) == [1, 1.5 if types[1] == "double" else 1, 2]
    finally:
        session.sql("DROP TABLE IF EXISTS widened")
        session.catalog.dropTempView("wide_rows")
        trilake.uninstall(session)


def test_invalid_automatic_widening_is_rejected(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    df = _frame(session, ("a", 1))
    df.write.format("delta").save(path)
    wrong = {"typeWidening.allowAutomaticWidening": "sometimes"}
    with _set(session, **wrong), pytest.raises(AnalysisException, match="same_family_type or never, got 'sometimes'"):
        df.write.format("delta").mode("append").option("mergeSchema", "true").save(path)


def test_cluster_by_creates_a_clustered_table(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    df = _frame(session, ("a", 1))
    df.write.clusterBy("n").format("delta").save(path)
    df.write.clusterBy("n").format("delta").mode("append").save(path)
    table = trilake.open(path)
    assert clustering_columns(table.snapshot) == [("n",)]  # type: ignore[attr-defined]
    assert "clustering" in table.protocol.writer_features  # type: ignore[attr-defined]
    with pytest.raises(AnalysisException, match="clustered by"):
        df.write.clusterBy("p").format("delta").mode("append").save(path)
    with pytest.raises(AnalysisException, match="CLUSTER BY"):
        df.write.clusterBy("p").partitionBy("p").format("delta").save(str(tmp_path / "both"))
    try:
        df.writeTo("settings_v2").using("delta").clusterBy("p").tableProperty("delta.appendOnly", "true").create()
        made = trilake.open(DeltaTable.forName(session, "settings_v2").detail().first()["location"])  # type: ignore[index]
        assert clustering_columns(made.snapshot) == [("p",)]  # type: ignore[attr-defined]
        assert made.metadata.configuration == {"delta.appendOnly": "true"}  # type: ignore[attr-defined]
        with pytest.raises(AnalysisException, match="unknown option"):
            df.writeTo("settings_v2").option("mergeSchem", "true").append()
    finally:
        session.sql("DROP TABLE IF EXISTS settings_v2")


def test_every_setting_has_one_meaning() -> None:
    names = [s.name.lower() for s in SETTINGS]
    assert len(names) == len(set(names))
    assert all(s.meaning for s in SETTINGS)
    for name, effect in {
        DEFAULTS + "appendOnly": "honoured",
        PREFIX + "merge.materializeSource": "harmless",
        PREFIX + "vacuum.lite.enabled": "honoured",
        PREFIX + "vacuum.parallelDelete.enabled": "harmless",
        PREFIX + "write.txnAppId": "honoured",
        PREFIX + "write.utcTimestampPartitionValues": "rejected",
    }.items():
        found = setting_of(name)
        assert found is not None
        assert found.effect == effect
    assert setting_of(PREFIX + "nobody.knows") is None


class _Conf:
    """Session settings: unset ones have the passed default, or Spark's, as in Spark."""

    def __init__(self, **own: str) -> None:
        self.own, self.conf = own, self

    def get(self, key: str, *default: str) -> str:
        return default[0] if default else self.own[key.rpartition(".")[2]]


def test_ansi_default_depends_on_the_release() -> None:
    assert [is_ansi(cast(SparkSession, _Conf(enabled=text))) for text in ("true", "false")] == [True, False]


def test_boolean_settings_are_strict(session: SparkSession) -> None:
    name = "schema.autoMerge.enabled"
    for text, meant in (("TRUE", True), ("False", False)):
        with _set(session, **{name: text}):
            assert session_flag(session, PREFIX + name, not meant) is meant
    with _set(session, **{name: "yes"}), pytest.raises(InvalidArgumentError, match="true or false"):
        session_flag(session, PREFIX + name, True)


def test_session_records_the_last_commit_version(session: SparkSession, tmp_path: Path) -> None:
    """By writes, SQL statements and calls, also if a commit triggers another one."""
    trilake.install(session)
    path, copy, files = str(tmp_path / "t"), str(tmp_path / "copy"), str(tmp_path / "files")
    name, table = f"delta.`{path}`", DeltaTable.forPath
    session.range(2).write.parquet(files)
    compacts = "'delta.autoOptimize.autoCompact' = 'true'"
    for version, change in (
        (0, lambda: session.range(3).write.format("delta").save(path)),
        (1, lambda: trilake.write(session.range(3), path, mode="append")),
        (2, lambda: session.sql(f"INSERT INTO {name} VALUES (7)")),
        (3, lambda: session.sql(f"DELETE FROM {name} WHERE id = 7")),
        (4, lambda: table(session, path).update("id = 1", {"id": F.lit(9)})),
        (
            5,
            lambda: (
                table(session, path).alias("t").merge(session.range(5, 6), "false").whenNotMatchedInsertAll().execute()
            ),
        ),
        (6, lambda: session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({compacts})")),
        (0, lambda: session.sql(f"CREATE TABLE delta.`{copy}` SHALLOW CLONE {name}")),
        (7, lambda: table(session, path).optimize().executeCompaction()),
        (8, lambda: table(session, path).restoreToVersion(1)),
        (0, lambda: DeltaTable.convertToDelta(session, f"parquet.`{files}`")),
    ):
        session.conf.unset(LAST_VERSION)
        change()
        assert session.conf.get(LAST_VERSION) == str(version)
    session.table(name).count()
    trilake.write(pa.table({"id": [1]}), path, mode="append")
    assert session.conf.get(LAST_VERSION) == "0", "Spark has no part in it"
    session.conf.unset(LAST_VERSION)
    trilake.uninstall(session)
    assert pickle.loads(pickle.dumps(session_log(session, MemoryStore()).engine)).hooks
