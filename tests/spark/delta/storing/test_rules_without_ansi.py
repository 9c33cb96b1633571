"""Generated columns and constraints in a session without ANSI mode, where casts and arithmetic do not fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import ConstraintViolatedError

#: Expressions on :data:`ROW` that fail in ANSI mode, and their values without it.
GENERATED = {
    "CAST(s AS INT)": ("INT", None),
    "a div b": ("BIGINT", None),
    "a % b": ("INT", None),
    "c + a": ("INT", -(2**31)),
    "CAST(c AS TINYINT)": ("TINYINT", -1),
    "make_date(2024, c, 1)": ("DATE", None),
}
#: Conditions that are true for :data:`ROW` only without ANSI mode.
TRUE = ["a div b IS NULL", "c + a < 0", "CAST(s AS INT) IS NULL", "CAST(c AS TINYINT) = -1", "s > 1 OR a = 1"]
ROW = f"1 AS id, 'x' AS s, 1 AS a, 0 AS b, {2**31 - 1} AS c"


@pytest.fixture(autouse=True)
def session(sql: SparkSession, conf: Callable[[str, str], None]) -> SparkSession:
    conf("spark.sql.ansi.enabled", "false")
    return sql


def _created(session: SparkSession, path: Path, more: str = "") -> str:
    name = f"delta.`{path}`"
    session.sql(f"CREATE TABLE {name} (id INT, s STRING, a INT, b INT, c INT{more}) USING delta")
    return name


@pytest.mark.parametrize("way", ["INSERT", "append", "UPDATE", "MERGE", "MERGE INSERT"])
def test_generated_columns_have_the_values_of_the_session(session: SparkSession, tmp_path: Path, way: str) -> None:
    """The embedded engine computed them in ANSI mode, and failed."""
    more = "".join(f", g{i} {kind} GENERATED ALWAYS AS ({e})" for i, (e, (kind, _)) in enumerate(GENERATED.items()))
    t = _created(session, tmp_path / "t", more)
    if way in ("UPDATE", "MERGE"):
        session.sql(f"INSERT INTO {t} (id, s, a, b, c) VALUES (1, '5', 1, 1, 1)")
    if way == "INSERT":
        session.sql(f"INSERT INTO {t} (id, s, a, b, c) SELECT {ROW}")
    elif way == "append":
        session.sql(f"SELECT {ROW}").write.format("delta").mode("append").save(str(tmp_path / "t"))
    elif way == "UPDATE":
        session.sql(f"UPDATE {t} SET s = 'x', b = 0, c = {2**31 - 1}")
    elif way == "MERGE":
        session.sql(f"MERGE INTO {t} t USING (SELECT {ROW}) r ON t.id = r.id WHEN MATCHED THEN UPDATE SET *")
    else:
        session.sql(f"MERGE INTO {t} t USING (SELECT {ROW}) r ON t.id = r.id WHEN NOT MATCHED THEN INSERT *")
    [row] = session.table(t).select(*(f"g{i}" for i in range(len(GENERATED)))).collect()
    assert list(row) == [value for _, value in GENERATED.values()]
    with pytest.raises(ConstraintViolatedError, match="generated column g3"):
        session.sql(f"INSERT INTO {t} (id, s, a, b, c, g3) SELECT {ROW}, 5")


@pytest.mark.parametrize("condition", TRUE)
def test_constraints_have_the_meaning_of_the_session(session: SparkSession, tmp_path: Path, condition: str) -> None:
    """The embedded engine evaluated them in ANSI mode, and failed, also for the existing rows of a new constraint."""
    t = _created(session, tmp_path / "t")
    session.sql(f"INSERT INTO {t} SELECT {ROW}")
    session.sql(f"ALTER TABLE {t} ADD CONSTRAINT c CHECK ({condition})")
    session.sql(f"INSERT INTO {t} SELECT {ROW}")
    session.sql(f"UPDATE {t} SET id = 2")
    with pytest.raises(ConstraintViolatedError):
        session.sql(f"INSERT INTO {t} VALUES (3, '0', 5, 1, 0)")
    assert [r.id for r in session.table(t).select("id").collect()] == [2, 2]


def test_constraint_on_generated_identity_values(session: SparkSession, tmp_path: Path) -> None:
    """Spark does not have these values, so the embedded engine evaluates the condition."""
    t = _created(session, tmp_path / "t", ", n BIGINT GENERATED ALWAYS AS IDENTITY")
    session.sql(f"ALTER TABLE {t} ADD CONSTRAINT c CHECK (n % 2 < 2)")
    session.sql(f"INSERT INTO {t} (id) VALUES (1)")
    assert trilake.open(tmp_path / "t").to_arrow()["n"].to_pylist() == [1]


def test_rules_on_columns_that_a_merge_does_not_assign(session: SparkSession, tmp_path: Path) -> None:
    t = _created(session, tmp_path / "t", ", g INT GENERATED ALWAYS AS (a % 3)")
    session.sql(f"ALTER TABLE {t} ADD CONSTRAINT c CHECK (coalesce(b + g, 0) < 5)")
    session.sql(
        f"MERGE INTO {t} t USING (SELECT {ROW}) r ON t.id = r.id WHEN NOT MATCHED THEN INSERT (id) VALUES (r.id)"
    )
    session.sql(f"MERGE INTO {t} t USING (SELECT {ROW}) r ON t.id = r.id WHEN MATCHED THEN UPDATE SET a = 5")
    assert [tuple(r) for r in session.sql(f"SELECT id, a, b, g FROM {t}").collect()] == [(1, 5, None, 2)]
