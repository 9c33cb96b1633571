"""The statements that only Delta's grammar knows, and those that are read here for all releases of Spark."""

from __future__ import annotations

import pytest

from trilake.errors import InvalidArgumentError
from trilake.sql.parser.candidates import candidates
from trilake.sql.parser.create import parse_create
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.delete_update import parse_delete, parse_update
from trilake.sql.parser.expressions import requalified
from trilake.sql.parser.insert import parse_inserts
from trilake.sql.parser.literals import literal
from trilake.sql.parser.maintenance import (
    Convert,
    Detail,
    Generate,
    History,
    Optimize,
    Reorg,
    Restore,
    Vacuum,
    parse_maintenance,
)
from trilake.sql.parser.merge import parse_merge
from trilake.sql.parser.statements import kind
from trilake.sql.parser.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("OPTIMIZE db.t", Optimize(("db", "t"))),
        (
            "optimize delta.`/a b` where p = 'ZORDER' zorder by (a, s.x)",
            Optimize(("delta", "/a b"), "p = 'ZORDER'", ("a", "s.x")),
        ),
        ("OPTIMIZE '/x' FULL", Optimize(("/x",), full=True)),
        ("VACUUM t DRY RUN", Vacuum(("t",), dry_run=True)),
        ("VACUUM t RETAIN 10S HOURS", Vacuum(("t",), 10.0)),
        ("DESCRIBE HISTORY t LIMIT 5bd", History(("t",), 5)),
        ("VACUUM t LITE RETAIN 1.5 HOURS -- now", Vacuum(("t",), 1.5, lite=True)),
        ("VACUUM t USING INVENTORY (SELECT * FROM f)", Vacuum(("t",), inventory="SELECT * FROM f")),
        ("DESC HISTORY t LIMIT 3", History(("t",), 3)),
        ("DESCRIBE DETAIL '/p'", Detail(("/p",))),
        ("RESTORE t TO VERSION AS OF 3", Restore(("t",), 3)),
        ("RESTORE TABLE t TIMESTAMP AS OF '2024-01-01'", Restore(("t",), None, "'2024-01-01'")),
        (
            "CONVERT TO DELTA parquet.`/x` NO STATISTICS PARTITIONED BY (a INT)",
            Convert(("parquet", "/x"), "a INT", False),
        ),
        ("GENERATE SYMLINK_FORMAT_MANIFEST FOR TABLE t", Generate(("t",), "symlink_format_manifest")),
        ("REORG TABLE t WHERE p = 1 APPLY (PURGE)", Reorg(("t",), "p = 1")),
        ("REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))", Reorg(("t",), compat=2)),
        ("REORG TABLE t APPLY (UPGRADE UNIFORM(ICEBERG_COMPAT_VERSION=2))", Reorg(("t",), compat=2)),
    ],
)
def test_a_statement_of_delta_is_read(text: str, wanted: object) -> None:
    assert parse_maintenance(Cursor(text)) == wanted


@pytest.mark.parametrize(
    "text", ["DESCRIBE history", "DESC detail", "SELECT optimize FROM t", "INSERT INTO vacuum VALUES (1)"]
)
def test_a_name_like_a_word_of_the_grammar_is_a_name(text: str) -> None:
    assert parse_maintenance(Cursor(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "VACUUM t RETAIN seven HOURS",
        "VACUUM t RETAIN 1S.5 HOURS",
        "OPTIMIZE t ZORDER a",
        "OPTIMIZE t x y",
        "RESTORE t TO VERSION 3",
        "RESTORE t TO VERSION AS OF 1.5",
        "DESCRIBE HISTORY t LIMIT 1e2",
        f"DESCRIBE HISTORY t LIMIT {'9' * 5000}",
        "REORG TABLE t",
    ],
)
def test_a_statement_that_goes_wrong_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        parse_maintenance(Cursor(text))


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t CLONE s WHERE p = 1",
        "CREATE TABLE t SHALLOW CLONE s VERSION AS OF 1 LOCATION '/x' y",
        "CREATE TABLE t LIKE s y z",
        "CREATE TABLE t (a INT) USING delta y z",
        "CREATE TABLE t (a INT, CONSTRAINT c CHECK (a > 0) NOT ENFORCED) USING delta",
        "CREATE TABLE t (a INT, CHECK (a > 0) y) USING delta",
    ],
)
def test_what_follows_a_new_table_is_not_passed_over(text: str) -> None:
    """A clone took all rows, whatever was behind its name."""
    with pytest.raises(SyntaxProblem):
        parse_create(Cursor(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) USING delta", "PRIMARY KEY is not supported"),
        ("CREATE TABLE t (a INT, CONSTRAINT u UNIQUE (a)) USING delta", "UNIQUE is not supported"),
        ("CREATE TABLE t (a INT) USING delta DEFAULT COLLATION UNICODE", "collation UNICODE is not supported"),
        ("CREATE EXTERNAL TABLE t (a INT) USING delta", "needs a location"),
    ],
)
def test_what_tables_do_not_have_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        parse_create(Cursor(text))


def test_a_column_may_be_called_like_a_key() -> None:
    call = parse_create(Cursor("CREATE TABLE t (unique INT, primary STRING, constraint INT) USING delta"))
    assert call is not None
    assert [c.name for c in call.columns] == ["unique", "primary", "constraint"]


def test_columns_have_types_with_brackets_and_rules() -> None:
    text = """CREATE OR REPLACE TABLE db.`t t` (
      id BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY -2),
      s STRUCT<a: INT NOT NULL COMMENT 'x, y', b: MAP<STRING, ARRAY<DECIMAL(10, 2)>>> NOT NULL COMMENT 'it''s',
      d INT DEFAULT 1 + 2, g INT GENERATED ALWAYS AS (d * (2)), delta STRING, merge VARCHAR(5),
      CONSTRAINT c CHECK (d > 0)
    ) USING delta PARTITIONED BY (d) TBLPROPERTIES ('a.b' = '1', delta.appendOnly = true) LOCATION '/x' COMMENT 'c'"""
    call = parse_create(Cursor(text))
    assert call is not None
    assert call.parts == ("db", "t t")
    assert [c.name for c in call.columns] == ["id", "s", "d", "g", "delta", "merge"]
    assert call.columns[0].identity == (5, -2, True)
    assert call.columns[1].type.startswith("STRUCT<a: INT NOT NULL")
    assert not call.columns[1].nullable
    assert (call.columns[2].default, call.columns[3].generated) == ("1 + 2", "d * (2)")
    assert call.checks == (("c", "d > 0"),)
    assert call.properties == {"a.b": "1", "delta.appendOnly": "true"}
    assert (call.partition_by, call.location, call.comment, call.replace) == (("d",), "/x", "c", True)


def test_a_query_in_brackets_is_no_list_of_columns() -> None:
    call = parse_create(Cursor("CREATE TABLE t USING delta AS (SELECT 1 AS a)"))
    assert call is not None
    assert (call.columns, call.query) == ((), "(SELECT 1 AS a)")


def test_inserts_of_one_scan_are_several() -> None:
    found = parse_inserts("FROM (SELECT id FROM r) q INSERT INTO a SELECT id WHERE id < 3 INSERT OVERWRITE b SELECT id")
    assert [(i.parts, i.overwrite, i.query) for i in found] == [
        (("a",), False, "FROM (SELECT id FROM r) q SELECT id WHERE id < 3"),
        (("b",), True, "FROM (SELECT id FROM r) q SELECT id"),
    ]


def test_an_insert_says_columns_partitions_and_what_it_replaces() -> None:
    [one] = parse_inserts("INSERT INTO t PARTITION (y, m = 'z') (v, y) VALUES (5, 5)")
    assert (dict(one.static), one.dynamic, one.columns, one.query) == (
        {"m": "'z'"},
        ("y",),
        ("v", "y"),
        "VALUES (5, 5)",
    )
    [two] = parse_inserts("WITH c AS (SELECT 1) INSERT INTO t REPLACE WHERE a > 'SELECT' SELECT * FROM c;")
    assert (two.replace_where, two.query) == ("a > 'SELECT'", "WITH c AS (SELECT 1) SELECT * FROM c")
    [three] = parse_inserts("INSERT OVERWRITE TABLE t BY NAME (SELECT 1 AS a)")
    assert (three.by_name, three.columns, three.query) == (True, None, "(SELECT 1 AS a)")


def test_changes_have_aliases_conditions_and_values() -> None:
    assert parse_delete(Cursor("DELETE FROM t AS k WHERE k.a IN (SELECT 1)")).condition == "k.a IN (SELECT 1)"
    change = parse_update(
        Cursor("UPDATE t SET a = CASE WHEN b THEN 1 ELSE 2 END, s.`x y` = f(1, 2) WHERE c = ', d = 1'")
    )
    assert change.values == ((("a",), "CASE WHEN b THEN 1 ELSE 2 END"), (("s", "x y"), "f(1, 2)"))
    assert change.condition == "c = ', d = 1'"


def test_a_merge_has_all_its_clauses() -> None:
    merge = parse_merge(
        Cursor(
            """MERGE WITH SCHEMA EVOLUTION INTO db.t AS x USING (SELECT 1 AS a) AS s ON x.a = s.a
            WHEN MATCHED AND CASE WHEN s.a > 1 THEN true END THEN UPDATE SET x.b = s.b, c = 'WHEN'
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED BY TARGET THEN INSERT (a, b) VALUES (s.a, f(1, 2))
            WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *"""
        )
    )
    assert (merge.parts, merge.alias, merge.source_alias, merge.evolve) == (("db", "t"), "x", "s", True)
    assert [(c.kind, c.action) for c in merge.clauses] == [
        ("matched", "update"),
        ("matched", "delete"),
        ("not_matched", "insert"),
        ("not_matched_by_source", "update"),
    ]
    assert merge.clauses[0].condition == "CASE WHEN s.a > 1 THEN true END"
    assert merge.clauses[2].values == ((("a",), "s.a"), (("b",), "f(1, 2)"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT delta, merge FROM t WHERE s = 'FROM x'", {("t",)}),
        ("SELECT * FROM a, b JOIN db.c ON f(d) = e", {("a",), ("b",), ("db", "c")}),
        ("SELECT * FROM delta.`/x` -- FROM y", {("delta", "/x")}),
        ("WITH q AS (SELECT * FROM t) SELECT * FROM q", {("t",)}),
        ("TABLE t", {("t",)}),
        ("SELECT (SELECT max(x) FROM `a b`) FROM (c JOIN d)", {("a b",), ("c",), ("d",)}),
    ],
)
def test_every_relation_is_among_the_candidates(text: str, wanted: set[tuple[str, ...]]) -> None:
    assert wanted <= candidates(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b JOIN a ON true, c", {("c",)}),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {("t",)}),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) JOIN a", {("a",)}),
        ("WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t", {("t",)}),
        ("WITH t AS (SELECT 1) DELETE FROM t", {("t",), ("FROM",)}),
        ("WITH A AS (SELECT 1) SELECT * FROM a", {("a",)}),
        (
            "SELECT sum(x) OVER w FROM z WINDOW w AS (ORDER BY 1), v AS (ORDER BY 2) UNION SELECT * FROM v",
            {("z",), ("v",)},
        ),
        ("WITH a AS (SELECT 1) SELECT * FROM a; SELECT * FROM a", {("a",)}),
    ],
)
def test_a_common_table_is_no_candidate_where_its_name_can_be_nothing_else(
    text: str, wanted: set[tuple[str, ...]]
) -> None:
    assert candidates(text) == wanted


def test_what_a_statement_does_is_behind_its_common_tables() -> None:
    assert kind(tokenize("WITH a AS (SELECT 1) MERGE INTO t USING a ON true WHEN MATCHED THEN DELETE")) == "MERGE"
    assert kind(tokenize("WITH insert AS (SELECT 1) SELECT * FROM insert")) == "WITH"


def test_names_of_tables_go_from_columns_and_from_nothing_else() -> None:
    names = {("db", "t"): "x", ("t",): ""}
    assert requalified("DB.t.a = 't.b' AND t.c > u.t AND `t`.`d e` IS NULL", names) == (
        "x.a = 't.b' AND c > u.t AND `d e` IS NULL"
    )
    # In the body of a lambda its variables are meant.
    assert requalified("exists(t.a, t -> t.b = f(t.c, 1)) AND t.b", names) == "exists(a, t -> t.b = f(t.c, 1)) AND b"
    assert requalified("reduce(t.a, t.b, (x, T) -> x + t.c, x -> t.d)", names) == (
        "reduce(a, b, (x, T) -> x + t.c, x -> d)"
    )


def test_values_become_literals() -> None:
    assert literal({"a": [1, 1 << 40, None]}) == "map('a', array(1, 1099511627776L, NULL))"
    assert literal(b"\x00\xff") == "X'00ff'"


@pytest.mark.parametrize(
    "text",
    ["VACUUM t RETAIN 200 HOURS RETAIN 0 HOURS", "VACUUM t FULL LITE", "VACUUM t DRY RUN DRY RUN"],
)
def test_a_clause_of_vacuum_stands_once(text: str) -> None:
    """The last one counted, and the first was taken without effect."""
    with pytest.raises(SyntaxProblem):
        parse_maintenance(Cursor(text))
