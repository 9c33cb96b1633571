"""head, count, explain, query and changes: rows, from every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run


@pytest.mark.parametrize("place", ["delta", "lance", "trevni"])
def test_head_and_count_of_every_format(request: pytest.FixtureRequest, place: str) -> None:
    table = request.getfixturevalue(place)
    rows = run("head", table, "-n", "1", "-c", "id", "--where", "kind = 'b'", "--json").json
    assert rows == [{"id": 3}]
    assert run("count", table, "--where", "kind = 'b'").out.strip() == ("2" if place == "lance" else "1")
    assert run("count", table, "--json").json["count"] == {"delta": 2, "lance": 6, "trevni": 3}[place]


def test_non_finite_numbers_are_json_strings(delta: str) -> None:
    rows = {r["id"]: r["x"] for r in run("head", delta, "-v", "0", "--json").json}
    assert rows == {1: 0.5, 2: "NaN", 3: None}


def test_explain_states_why_files_are_skipped(delta: str) -> None:
    found = run("explain", delta, "-w", "kind = 'b'", "--json").json
    assert sorted(f["kept"] for f in found["files"]) == [False, True]
    assert found["filter"] == "kind = 'b'"
    assert "1 of 2 kept, 1 skipped" in run("explain", delta, "-w", "kind = 'b'").out
    assert "partition value" in run("explain", delta, "-w", "kind = 'b'", "--files").out


def test_query_joins_tables_of_all_formats_by_path(delta: str, lance: str, trevni: str) -> None:
    sql = (
        f"SELECT d.id, count(*) AS n FROM '{delta}@v0' d JOIN '{lance}' l USING (id) JOIN t USING (id)"
        " WHERE d.kind = 'a' GROUP BY ALL ORDER BY ALL"
    )
    assert run("query", sql, "-t", f"t={trevni}", "--json").json == [{"id": 1, "n": 2}, {"id": 2, "n": 2}]


def test_query_version_of_a_relative_path(delta: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _, name = delta.rpartition("/")
    monkeypatch.chdir(folder)
    assert run("query", f"SELECT count(*) AS n FROM '{name}@v0'", "--json").json == [{"n": 3}]


def test_query_resolves_paths_in_subqueries_and_keeps_ctes(delta: str) -> None:
    sql = f"WITH x AS (FROM '{delta}') SELECT count(*) AS n FROM x WHERE id IN (SELECT id FROM '{delta}@v0')"
    assert run("query", sql, "--json").json == [{"n": 2}]


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("SELECT * FROM nope", 3, "table 'nope' cannot be found"),
        ("SELEC 1", 3, "syntax error"),
        ("SELECT 1; SELECT 2", 2, "expected one SELECT"),
        ("COPY (SELECT 1) TO 'x.csv'", 2, "expected one SELECT, got COPY"),
        ("SELECT * FROM read_csv('x.csv')", 3, "disabled"),
        ("SELECT * FROM '/no/where'", 4, "no Delta, Lance or Trevni table found"),
        ("SELECT CAST('x' AS INT)", 3, "Could not convert"),
    ],
)
def test_invalid_query_is_rejected(sql: str, code: int, words: str) -> None:
    done = run("query", sql)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_query_raises_the_error_of_the_table(tmp_path: Path) -> None:
    import trilake

    trilake.write([{"n": 1}], tmp_path / "t")
    (tmp_path / "t" / trilake.open(tmp_path / "t").files()["path"][0].as_py()).unlink()
    done = run("query", f"SELECT * FROM '{tmp_path}/t'", "--json")
    assert done.error["code"] == "MISSING_FILE"
    assert done.code == done.error["exit_code"] == 6


def test_query_reads_plain_files_with_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import trilake
    from trilake.delta.table import ArrowDeltaTable

    trilake.write([{"n": 1}], tmp_path / "t")
    monkeypatch.setattr(ArrowDeltaTable, "to_reader", None)
    assert run("query", f"SELECT n FROM '{tmp_path}/t'", "--json").json == [{"n": 1}]
    assert run("query", "SELECT n FROM x", "-t", f"x={tmp_path}/t", "--json").json == [{"n": 1}]


def test_late_evaluation_error_is_a_query_error(tmp_path: Path) -> None:
    import trilake

    trilake.write({"s": ["1"] * 200_000 + ["x"]}, tmp_path / "t")
    done = run("query", f"SELECT s::INT AS n FROM '{tmp_path}/t'", "--json")
    assert done.error["code"] == "QUERY"
    assert "'x'" in done.error["message"]


def test_duplicate_column_names_are_all_printed(delta: str) -> None:
    assert run("query", "SELECT 1 AS a, 2 AS a", "--json").json == [{"a": 1, "a_1": 2}]
    assert run("query", "SELECT 1 AS a, 2 AS a").out.split()[-2:] == ["1", "2"]


def test_changes_print_the_change_feed(delta: str, lance: str) -> None:
    rows = run("changes", delta, "--from", "1", "--json").json
    assert [(r["id"], r["_change_type"], r["_commit_version"]) for r in rows] == [(2, "delete", 1)]
    assert len(run("changes", delta, "-c", "id", "--json").json) == 4
    assert len(run("changes", delta, "--from", "1999-01-01", "--to", "1", "--json").json) == 4
    assert run("changes", delta, "--from", "nope").code == 2
    done = run("changes", lance)
    assert done.code == 2
    assert "no change data feed" in done.err


def test_diff_counts_rows_columns_and_files(delta: str, lance: str) -> None:
    found = run("diff", delta, "0", "1", "--key", "id", "--json").json
    assert (found["rows"]["removed"], found["rows"]["added"], found["rows"]["same"]) == (1, 0, 2)
    assert found["rows"]["removed_rows"] == [{"id": 2, "kind": "a", "x": "NaN"}]
    assert found["equal"] is False
    people = run("diff", delta, "0")
    assert people.code == 0
    assert "1 removed" in people.out
    assert run("diff", delta, "0", "--exit-code").code == 1
    assert run("diff", delta, "1", "--exit-code").code == 0
    assert run("diff", delta).code == 2
    other = run("diff", delta, "--to", lance, "--no-rows", "--json").json
    assert other["rows"] is None
    assert [c["column"] for c in other["schema"]] == ["x"]
