"""``trilake.sql``: statements over tables by path without Spark, which is never loaded."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake.delta.scan import scan as scanning
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConstraintViolatedError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
)
from trilake.sql.duckdb.table_paths import TablePath
from trilake.sql.parser.cursor import SqlTextError
from trilake.table.table import Table


@pytest.fixture
def t(tmp_path: Path) -> str:
    """The name of a Delta table with three rows, in statements."""
    name = f"delta.`{tmp_path}/two words`"
    run(f"CREATE TABLE {name} (id BIGINT, note STRING) USING delta COMMENT 'c'")
    run(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    return name


def run(text: str, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = trilake.sql(text, *args, **kwargs).to_pylist()
    return rows


def test_query_names_tables_by_path_at_any_depth(t: str) -> None:
    run(f"DELETE FROM {t} WHERE id = 1")
    assert run(f"SELECT count(*) AS n FROM {t}") == [{"n": 2}]
    assert run(f"SELECT sum(id) AS s FROM {t} VERSION AS OF 1") == [{"s": 6}]
    assert run(f"SELECT `id` FROM {t[:-1]}@v1` x WHERE x.id NOT IN (SELECT id FROM {t})") == [{"id": 1}]
    assert run(f"WITH q AS (SELECT id FROM {t}) SELECT max(id) AS m FROM q") == [{"m": 3}]
    assert run(f"SELECT {t}.note FROM {t} ORDER BY 1") == [{"note": "b"}, {"note": None}]  # nulls last, as in DuckDB
    assert trilake.sql(f"SELECT sum(id) AS s FROM {t}").schema.field("s").type == pa.decimal128(38, 0)  # HUGEINT


def test_query_accepts_duckdb_quoting(t: str) -> None:
    path = t.removeprefix("delta.").strip("`")
    for name in (f"'{path}'", f'"{path}"', f"`{path}`", f'delta."{path}"', f"delta.'{path}'", f"DELTA.`{path}`"):
        assert run(f"SELECT max(id) AS m FROM {name}") == [{"m": 3}]
    assert run(f"SUMMARIZE '{path}'")[0]["column_name"] == "id"
    assert run(f"DELETE FROM '{path}' WHERE id = 1") == [{"num_affected_rows": 1}]
    run(f"MERGE INTO '{path}' t USING '{path}@v1' s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    run(f"INSERT INTO '{path}' SELECT max(id) + 1, 'C:\\' FROM '{path}'")
    assert run(f"SELECT id FROM '{path}' EXCEPT FROM (SELECT id FROM '{path}@v1')") == [{"id": 4}]
    run(f"CREATE TABLE '{path}-new' AS FROM '{path}'")
    assert trilake.open(f"{path}-new").format == "delta"


@pytest.mark.parametrize(
    "version", ["VERSION AS OF 0 + 1", "TIMESTAMP AS OF now() - INTERVAL 0 DAY", "VERSION AS OF $one"]
)
def test_version_follows_the_table_name(t: str, version: str) -> None:
    args = {"one": 1} if "$one" in version else None
    assert run(f"SELECT x.id FROM {t} {version} AS x ORDER BY id LIMIT 1", args) == [{"id": 1}]
    assert run(f"SELECT count(*) AS n FROM {t} {version} x JOIN {t} y USING (id)", args) == [{"n": 3}]
    unit, _, of = version.partition(" AS OF ")
    assert run(f"SELECT count(x.id) AS n FROM {t} AS x AT ({unit} => {of}) WHERE x.id > 1", args) == [{"n": 2}]


def test_paths_are_case_sensitive(tmp_path: Path) -> None:
    for name, rows in (("t", 1), ("T", 2)):
        trilake.write({"n": range(rows)}, tmp_path / name)
    counts = ", ".join(f"(SELECT count(*) FROM '{tmp_path}/{name}') AS {name * 2}" for name in ("t", "T"))
    assert list(run(f"SELECT {counts}")[0].values()) == [1, 2]


def test_cte_may_have_the_name_of_the_rows_it_reads() -> None:
    assert run("WITH x AS (SELECT a + 1 AS a FROM x) SELECT a FROM x", x={"a": [1]}) == [{"a": 2}]


def test_colon_inside_a_string_is_not_a_parameter() -> None:
    rows = {"b": [3], "n": [1], "l": [[1, 2]]}
    assert run("SELECT {'a':b} AS s, l[1:n] AS l FROM x WHERE b > :n", {"n": 0, "b": 9}, x=rows) == [
        {"s": {"a": 3}, "l": [1]}
    ]


@pytest.mark.parametrize("version", ["1.5", "1e0", "true", "'1.5'", "NULL", "DATE'2024-01-01'"])
def test_version_must_be_an_integer(tmp_path: Path, version: str) -> None:
    trilake.write({"id": [1]}, tmp_path / "t")
    trilake.write({"id": [2]}, tmp_path / "t", mode="append")
    with pytest.raises(InvalidArgumentError, match="not a valid version"):
        trilake.sql(f"SELECT * FROM delta.`{tmp_path}/t` VERSION AS OF {version}")


def test_all_references_to_a_table_see_one_version(t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions: list[int | None] = []
    original = TablePath.open

    def opened(place: TablePath, *args: Any) -> Table:
        table = original(place, *args)
        versions.append(table.version)
        return table

    monkeypatch.setattr(TablePath, "open", opened)
    assert run(
        f"SELECT a.n = b.n AS same FROM (SELECT count(*) AS n FROM {t}) a, (SELECT count(*) AS n FROM {t}) b"
    ) == [{"same": True}]
    assert len(versions) == 1


def test_time_travel_by_timestamp(t: str) -> None:
    before = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(trilake.errors.VersionNotFoundError):
        run(f"SELECT * FROM {t} TIMESTAMP AS OF '{before:%Y-%m-%d}'")
    assert run(f"SELECT count(*) AS n FROM {t} TIMESTAMP AS OF now()") == [{"n": 3}]


def test_statement_with_parameters_and_frames(t: str) -> None:
    assert run(f"SELECT note FROM {t} WHERE id = ? AND note <> '?'", [2]) == [{"note": "b"}]
    assert run(f"SELECT note FROM {t} WHERE id = :id", {"id": 1}) == [{"note": "a"}]
    assert run(f"SELECT t.id FROM {t} t JOIN more USING (id)", more={"id": [2, 9]}) == [{"id": 2}]


def test_query_reads_only_needed_files_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"delta.`{tmp_path}/t`"
    run(f"CREATE TABLE {name} AS SELECT 1 AS id, 'a' AS note")
    run(f"INSERT INTO {name} VALUES (2, 'b')")
    read: list[tuple[Any, int]] = []
    original = ArrowDeltaTable.to_reader

    def spy(table: ArrowDeltaTable, columns: Any = None, filter: Any = None) -> pa.RecordBatchReader:
        read.append((columns, table.files(filter).num_rows))
        return original(table, columns, filter)

    monkeypatch.setattr(ArrowDeltaTable, "to_reader", spy)
    monkeypatch.setattr(scanning, "MOST_PLAIN_FILES", 0)  # DuckDB does not read the files itself
    assert run(f"SELECT note FROM {name} WHERE id = 2") == [{"note": "b"}]
    [(columns, files)] = read
    assert set(columns) <= {"id", "note"}
    assert files == 1
    read.clear()
    run(f"SELECT note FROM {name}")
    assert list(read[0][0]) == ["note"]


def test_insert_by_position_by_name_and_into_partition(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/p`"
    run(f"CREATE TABLE {name} (v INT, d DOUBLE, p STRING) PARTITIONED BY (p)")
    run(f"INSERT INTO {name} (p, v) VALUES ('x', 1)")
    run(f"INSERT INTO {name} BY NAME SELECT 'y' AS p, 2.5 AS d")
    run(f"INSERT INTO {name} PARTITION (p = 'z') SELECT 3, 3")
    run(f"INSERT OVERWRITE {name} PARTITION (p = 'x') VALUES (10, NULL)")
    run(f"INSERT INTO {name} REPLACE WHERE p = 'y' VALUES (20, 1, 'y')")
    assert run(f"SELECT * FROM {name} ORDER BY p") == [
        {"v": 10, "d": None, "p": "x"},
        {"v": 20, "d": 1.0, "p": "y"},
        {"v": 3, "d": 3.0, "p": "z"},
    ]
    with pytest.raises(SchemaMismatchError, match="3"):
        run(f"INSERT INTO {name} VALUES (1)")
    with pytest.raises(InvalidArgumentError, match="non-partition column v"):
        run(f"INSERT INTO {name} PARTITION (v = 1) VALUES (1, 'x')")


def test_default_keyword_uses_the_column_default(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/d`"
    feature = "'delta.feature.allowColumnDefaults' = 'supported'"
    run(f"CREATE TABLE {name} (id INT, k STRING DEFAULT upper('k')) TBLPROPERTIES ({feature})")
    run(f"INSERT INTO {name} VALUES (1, DEFAULT), (2, 'own')")
    run(f"INSERT INTO {name} (id) VALUES (3)")
    run(f"UPDATE {name} SET k = DEFAULT WHERE id = 2")
    assert run(f"SELECT DISTINCT k FROM {name}") == [{"k": "K"}]


def test_new_table_with_checks_as_properties(tmp_path: Path) -> None:
    name, like = f"delta.`{tmp_path}/checked`", f"delta.`{tmp_path}/like`"
    properties = "'delta.constraints.Positive' = 'n > 0', 'k' = 'v'"
    run(f"CREATE TABLE {name} (n BIGINT) TBLPROPERTIES ({properties})")
    run(f"CREATE TABLE {like} LIKE {name} TBLPROPERTIES ('delta.constraints.low' = 'n < 9')")
    for table, wrong in ((name, 0), (like, 0), (like, 9)):
        with pytest.raises(ConstraintViolatedError, match=f"n = {wrong}"):
            run(f"INSERT INTO {table} VALUES ({wrong})")
    with pytest.raises(InvalidArgumentError) as rejected:
        run(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.constraints.other' = 'n > 1')")
    assert rejected.value.condition == "DELTA_ADD_CONSTRAINTS"


def test_merge_with_every_clause(t: str) -> None:
    assert run(f"UPDATE {t} AS x SET x.note = concat(note, '!') WHERE x.id < 3") == [{"num_affected_rows": 2}]
    assert run(f"DELETE FROM {t} WHERE {t}.id = 2") == [{"num_affected_rows": 1}]
    done = run(
        f"""MERGE INTO {t} AS o USING (SELECT 1 AS id, 'one' AS note UNION ALL SELECT 9, 'nine') n ON o.id = n.id
        WHEN MATCHED AND n.note = 'one' THEN UPDATE SET o.note = n.note
        WHEN NOT MATCHED THEN INSERT (id, note) VALUES (n.id, n.note)
        WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    )
    assert done == [
        {"num_affected_rows": 3, "num_updated_rows": 1, "num_deleted_rows": 1, "num_inserted_rows": 1},
    ]
    assert run(f"SELECT * FROM {t} ORDER BY id") == [{"id": 1, "note": "one"}, {"id": 9, "note": "nine"}]
    run(f"TRUNCATE TABLE {t}")
    assert run(f"SELECT * FROM {t}") == []


def test_merge_computes_columns_with_the_word_default(tmp_path: Path) -> None:
    """The columns became null, which their rules reject."""
    columns = "id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2), n BIGINT GENERATED ALWAYS AS IDENTITY"
    run(f"CREATE TABLE delta.`{tmp_path}/t` ({columns})")
    run(
        f"MERGE INTO delta.`{tmp_path}/t` t USING (SELECT 3 AS id) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT (id, twice, n) VALUES (s.id, DEFAULT, DEFAULT)"
    )
    assert run(f"SELECT * FROM delta.`{tmp_path}/t`") == [{"id": 3, "twice": 6, "n": 1}]


def test_describe_an_older_version(t: str, tmp_path: Path) -> None:
    run(f"ALTER TABLE {t} ADD COLUMNS (s STRUCT<a: VARCHAR(3), b: TIMESTAMP_NTZ>, v VARIANT COMMENT 'x')")
    described = [(r["col_name"], r["data_type"], r["comment"]) for r in run(f"DESCRIBE {t}")]
    assert described[2:] == [("s", "struct<a:string,b:timestamp_ntz>", None), ("v", "variant", "x")]
    first = f"delta.`{tmp_path}/two words@v0`"
    assert [r["col_name"] for r in run(f"DESCRIBE {first}")] == ["id", "note"]
    assert [r["version"] for r in run(f"DESCRIBE HISTORY {first}")] == [0]


def test_maintenance_statements(t: str, tmp_path: Path) -> None:
    run(f"INSERT INTO {t} VALUES (4, 'd')")
    path = f"{tmp_path}/two words"
    [optimized] = run(f"OPTIMIZE '{path}' ZORDER BY (id)")
    assert optimized["metrics"]["num_files_removed"] == 2
    assert [r["operation"] for r in run(f"DESCRIBE HISTORY {t} LIMIT 1")] == ["OPTIMIZE"]
    assert run(f"DESC DETAIL {t}")[0]["numFiles"] == 1
    assert run(f"DESCRIBE TABLE {t}")[0] == {"col_name": "id", "data_type": "bigint", "comment": None}
    assert run(f"VACUUM {t} DRY RUN") == []
    run(f"ALTER TABLE {t} ADD COLUMN z INT FIRST")
    assert run(f"RESTORE {t} TO VERSION AS OF 1")[0]["num_restored_files"] == 1
    assert trilake.open(path).schema.names == ["id", "note"]
    run(f"CREATE TABLE delta.`{tmp_path}/clone` SHALLOW CLONE {t} VERSION AS OF 1")
    assert trilake.open(tmp_path / "clone").count() == 3
    run(f"GENERATE symlink_format_manifest FOR TABLE {t}")
    assert (Path(path) / "_symlink_format_manifest" / "manifest").exists()


def test_convert_parquet_folder_to_delta(tmp_path: Path) -> None:
    (tmp_path / "y=1").mkdir()
    pq.write_table(pa.table({"a": [7]}), tmp_path / "y=1" / "a.parquet")
    run(f"CONVERT TO DELTA parquet.`{tmp_path}` PARTITIONED BY (y INT)")
    assert run(f"SELECT * FROM delta.`{tmp_path}`") == [{"a": 7, "y": 1}]


def test_clone_parquet_folder(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"a": [7]}), tmp_path / "files" / "a.parquet")
    for kind in ("SHALLOW", "DEEP"):
        place = f"delta.`{tmp_path}/{kind}`"
        [done] = run(f"CREATE TABLE {place} {kind} CLONE parquet.`{tmp_path}/files`")
        assert done["source_num_of_files"] == 1
        assert run(f"SELECT * FROM {place}") == [{"a": 7}]
    with pytest.raises(InvalidArgumentError, match="no versions"):
        run(f"CREATE TABLE delta.`{tmp_path}/c` CLONE parquet.`{tmp_path}/files` VERSION AS OF 0")


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_other_formats_support_select_and_insert(tmp_path: Path, format: str) -> None:
    name = f"{format}.`{tmp_path}/x`"
    run(f"CREATE TABLE {name} AS SELECT 1 AS a, 'x' AS b")
    run(f"INSERT INTO {name} VALUES (2, 'y')")
    assert run(f"SELECT b FROM {name} WHERE a = 2") == [{"b": "y"}]
    with pytest.raises(InvalidArgumentError, match="Delta"):
        run(f"GENERATE symlink_format_manifest FOR TABLE {name}")


def test_create_existing_table(t: str) -> None:
    with pytest.raises(TableExistsError):
        run(f"CREATE TABLE {t} (a INT)")
    assert run(f"CREATE TABLE IF NOT EXISTS {t} (a INT)") == []
    run(f"CREATE OR REPLACE TABLE {t} AS SELECT 5 AS five")
    assert run(f"SELECT * FROM {t}") == [{"five": 5}]
    with pytest.raises(InvalidArgumentError, match="cannot be dropped"):
        run(f"DROP TABLE {t}")


def test_check_is_in_the_first_version_of_the_table(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    with pytest.raises(ExpressionError, match="nope"):
        run(f"CREATE TABLE {name} (id BIGINT, CONSTRAINT c CHECK (nope > 0))")
    assert not (tmp_path / "t" / "_delta_log").exists()
    run(f"CREATE TABLE {name} (id BIGINT, CONSTRAINT c CHECK (id > 0))")
    table = trilake.open(f"{tmp_path}/t")
    assert (table.version, table.properties["delta.constraints.c"]) == (0, "id > 0")
    with pytest.raises(ConstraintViolatedError):
        run(f"INSERT INTO {name} VALUES (-1)")


def test_replace_with_invalid_check_keeps_the_table(t: str) -> None:
    with pytest.raises(ExpressionError, match="nope"):
        run(f"CREATE OR REPLACE TABLE {t} (id BIGINT, CONSTRAINT c CHECK (nope > 0))")
    assert run(f"SELECT count(note) AS n FROM {t}") == [{"n": 2}]


def test_create_as_select_enforces_checks(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    with pytest.raises(ConstraintViolatedError):
        run(f"CREATE TABLE {name} (CONSTRAINT c CHECK (id > 0)) AS SELECT -1 AS id")
    assert not (tmp_path / "t" / "_delta_log").exists()
    run(f"CREATE TABLE {name} (CONSTRAINT c CHECK (id > 0)) AS SELECT 1 AS id")
    assert trilake.open(f"{tmp_path}/t").properties["delta.constraints.c"] == "id > 0"


def test_create_or_replace_like_copies_checks(t: str, tmp_path: Path) -> None:
    run(f"CREATE TABLE delta.`{tmp_path}/a` (id BIGINT, CHECK (id > 0))")
    run(f"CREATE OR REPLACE TABLE {t} LIKE delta.`{tmp_path}/a`")
    assert run(f"SELECT * FROM {t}") == []
    with pytest.raises(ConstraintViolatedError):
        run(f"INSERT INTO {t} VALUES (-1)")


def test_create_like_copies_clustering(tmp_path: Path) -> None:
    run(f"CREATE TABLE delta.`{tmp_path}/a` (id BIGINT, s STRUCT<x: INT>) CLUSTER BY (s.x, id)")
    run(f"CREATE TABLE delta.`{tmp_path}/b` LIKE delta.`{tmp_path}/a`")
    assert trilake.open(f"{tmp_path}/b").detail()["clusteringColumns"].to_pylist() == [["s.x", "id"]]


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'",
        "'delta.columnMapping.mode' = 'name', 'delta.minWriterVersion' = '5'",
        "'delta.feature.deletionVectors' = 'supported', 'delta.enableRowTracking' = 'true'",
    ],
)
def test_create_like_copies_the_protocol(tmp_path: Path, properties: str) -> None:
    run(f"CREATE TABLE delta.`{tmp_path}/a` (id BIGINT) TBLPROPERTIES ({properties})")
    run(f"CREATE TABLE delta.`{tmp_path}/b` LIKE delta.`{tmp_path}/a`")
    a, b = (trilake.open(tmp_path / name).protocol.unordered for name in "ab")
    assert a == b


def test_relative_path_without_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trilake.write({"id": [1, 2]}, "orders")
    assert run("SELECT count(*) AS n FROM delta.orders") == [{"n": 2}]
    run("DELETE FROM delta.`orders` WHERE id = 1")
    assert run("SELECT id FROM delta.`orders@v0` ORDER BY id") == [{"id": 1}, {"id": 2}]
    run("CREATE TABLE delta.copy AS SELECT * FROM delta.orders")
    assert trilake.open("copy").count() == 1
    with pytest.raises(TableNotFoundError, match=r"delta\.`/lake/orders`.*orders=df"):
        run("SELECT * FROM orders")


def test_errors_state_their_position(t: str) -> None:
    with pytest.raises(SqlTextError, match=r"line 2, pos \d+"):
        run(f"SELECT *\nFROM {t} WHERE")
    with pytest.raises(SqlTextError, match="expected a number of hours"):
        run(f"VACUUM {t} RETAIN seven HOURS")
    with pytest.raises(TableNotFoundError, match="no catalog"):
        run("SELECT * FROM orders")
    with pytest.raises(InvalidArgumentError, match="nope"):
        run(f"SELECT nope FROM {t}")
    with pytest.raises(InvalidArgumentError, match="do not support subqueries"):
        run(f"DELETE FROM {t} WHERE id IN (SELECT 1)")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "COPY (SELECT 1) TO '{file}.out'",
        "ATTACH '{file}.db'",
        "SELECT * FROM '{file}'",
        "INSTALL httpfs",
    ],
)
def test_query_cannot_access_other_files(tmp_path: Path, text: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    with pytest.raises(trilake.TrilakeError):
        run(text.replace("{file}", str(secret)))
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_sql_is_callable_and_does_not_load_spark() -> None:
    program = """
import sys, trilake
import trilake.sql.parser.tokens
assert trilake.sql("SELECT 1 + 1 AS two").to_pylist() == [{"two": 2}]
from trilake import sql
assert sql("VALUES (3)").num_rows == 1
assert not any(m.split(".")[0] in ("pyspark", "py4j") for m in sys.modules), "Spark was loaded"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_analyze_recomputes_statistics_of_all_files(t: str) -> None:
    before = run(f"DESCRIBE HISTORY {t}")[0]["version"]
    run(f"ANALYZE TABLE {t} COMPUTE STATISTICS NOSCAN")
    run(f"ANALYZE TABLE {t} COMPUTE STATISTICS FOR COLUMNS id")
    assert run(f"DESCRIBE HISTORY {t}")[0]["version"] == before
    run(f"ANALYZE TABLE {t} COMPUTE DELTA STATISTICS")
    assert run(f"DESCRIBE HISTORY {t} LIMIT 1")[0]["operation"] == "COMPUTE STATS"
    with pytest.raises(SqlTextError, match="leave PARTITION out"):
        run(f"ANALYZE TABLE {t} PARTITION (a = 1) COMPUTE STATISTICS")


def test_several_column_changes_are_one_commit(t: str) -> None:
    def versions() -> list[str]:
        return [r["operation"] for r in reversed(run(f"DESCRIBE HISTORY {t}"))]

    run(f"ALTER TABLE {t} SET TBLPROPERTIES ('comment' = 'all', 'delta.enableTypeWidening' = 'true', 'k' = 'v')")
    run(f"ALTER TABLE {t} UNSET TBLPROPERTIES ('comment', 'k')")
    run(f"ALTER TABLE {t} ADD COLUMN small INT")
    before = versions()
    assert before[-3:] == ["SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS"]
    wrong = (
        (f"ALTER TABLE {t} CHANGE COLUMN small small BIGINT NOT NULL COMMENT 'x' FIRST", ConstraintViolatedError),
        (f"ALTER TABLE {t} CHANGE COLUMN small small BIGINT COMMENT 'x' AFTER nothing", TrilakeError),
        (f"ALTER TABLE {t} ALTER COLUMN small COMMENT 'x', nothing FIRST", TrilakeError),
        (f"ALTER TABLE {t} ALTER COLUMN small COMMENT 'x' nothing", SqlTextError),
        (f"ALTER TABLE {t} DROP CONSTRAINT IF EXISTS k nothing", SqlTextError),
    )
    for text, error in wrong:
        with pytest.raises(error):
            run(text)
        assert versions() == before
    run(f"ALTER TABLE {t} CHANGE COLUMN small small BIGINT COMMENT 'x' FIRST")
    run(f"ALTER TABLE {t} ALTER COLUMN small COMMENT 'y', note FIRST")
    assert versions() == [*before, "CHANGE COLUMN", "CHANGE COLUMNS"]
    found = [(r["col_name"], r["data_type"], r["comment"]) for r in run(f"DESCRIBE {t}")]
    assert found == [("note", "string", None), ("small", "bigint", "y"), ("id", "bigint", None)]
    parameters = run(f"DESCRIBE HISTORY {t}")[1]["operationParameters"]
    assert dict(parameters)["position"] == "FIRST"
    assert '"type":"long"' in dict(parameters)["column"]


@pytest.mark.parametrize("form", ["ADD PARTITION", "DROP PARTITION", "DROP IF EXISTS PARTITION"])
def test_alter_partitions_is_rejected(t: str, form: str) -> None:
    """Dropping one was a syntax error."""
    with pytest.raises(InvalidArgumentError, match="not supported for Delta tables"):
        run(f"ALTER TABLE {t} {form} (id = 1)")


def test_column_named_like_a_keyword(t: str) -> None:
    run(f"ALTER TABLE {t} ADD COLUMN first INT")
    run(f"ALTER TABLE {t} CHANGE COLUMN first first INT COMMENT 'x' AFTER id")
    found = [(r["col_name"], r["comment"]) for r in run(f"DESCRIBE {t}")]
    assert found == [("id", None), ("first", "x"), ("note", None)]
    run(f"ALTER TABLE {t} CHANGE COLUMN first FIRST")
    assert run(f"DESCRIBE {t}")[0]["col_name"] == "first"


# --- nested values ----------------------------------------------------------------------------------------------------

PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])


def _nested(uri: str, format: str, struct: pa.DataType, value: dict[str, Any], **more: Any) -> str:
    rows = pa.table({"id": [1], "s": pa.array([value], struct), "l": pa.array([[value]], pa.list_(struct)), **more})
    trilake.write(rows, uri, format=format)
    return f"{format}.`{uri}`"


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_insert_matches_struct_fields_by_position_or_name(tmp_path: Path, format: str) -> None:
    to = _nested(f"{tmp_path}/to", format, PAIR, {"a": 1, "b": "x"})
    others = _nested(f"{tmp_path}/of", "delta", pa.struct([("n", pa.int64()), ("t", pa.string())]), {"n": 5, "t": "q"})
    run(f"INSERT INTO {to} SELECT 2, s, l FROM {others}")
    new = {"a": 5, "b": "q"}
    swapped = _nested(
        f"{tmp_path}/swapped", "delta", pa.struct([("b", pa.int64()), ("a", pa.string())]), {"b": 5, "a": "q"}
    )
    run(f"INSERT INTO {to} SELECT 3, s, l FROM {swapped}")
    expected = [{"id": 1, "s": {"a": 1, "b": "x"}, "l": [{"a": 1, "b": "x"}]}]
    expected += [{"id": i, "s": new, "l": [new]} for i in (2, 3)]
    assert run(f"SELECT * FROM {to} ORDER BY id") == expected
    with pytest.raises(SchemaMismatchError):
        run(f"INSERT INTO {to} BY NAME SELECT 2 AS id, s, l FROM {others}")
    fewer = _nested(f"{tmp_path}/fewer", "delta", pa.struct([("a", pa.int64())]), {"a": 5})
    with pytest.raises(
        SchemaMismatchError, match=r"struct for column s has 1 field \(a\), but the column has 2 \(a, b\)"
    ):
        run(f"INSERT INTO {to} SELECT 2, s, l FROM {fewer}")
    assert run(f"SELECT * FROM {to} ORDER BY id") == expected


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_insert_by_name_drops_nothing(tmp_path: Path, format: str) -> None:
    to = _nested(f"{tmp_path}/to", format, PAIR, {"a": 1, "b": "x"})
    wider = pa.struct([("a", pa.int64()), ("b", pa.string()), ("z", pa.int64())])
    of = _nested(f"{tmp_path}/of", "delta", wider, {"a": 5, "b": "q", "z": 9}, more=[1])
    for columns in ("2 AS id, s, l", "2 AS id, more"):
        with pytest.raises(SchemaMismatchError, match=r"\bz\b|more"):
            run(f"INSERT INTO {to} BY NAME SELECT {columns} FROM {of}")
    assert run(f"SELECT count(*) AS n FROM {to}") == [{"n": 1}]
    if format == "delta":
        run(f"INSERT WITH SCHEMA EVOLUTION INTO {to} BY NAME SELECT 2 AS id, s, l, more FROM {of}")
        new = {"a": 5, "b": "q", "z": 9}
        assert run(f"SELECT * FROM {to} WHERE id = 2") == [{"id": 2, "s": new, "l": [new], "more": 1}]
    else:
        with pytest.raises(InvalidArgumentError, match="does not support schema evolution"):
            run(f"INSERT WITH SCHEMA EVOLUTION INTO {to} BY NAME SELECT 2 AS id, s, l, more FROM {of}")
