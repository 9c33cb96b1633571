"""info, schema, files, history and log, as text and as JSON."""

from __future__ import annotations

from tests.cli.running import run


def test_info_starts_with_the_same_keys_for_every_format(delta: str, lance: str, trevni: str) -> None:
    found = [run("info", place, "--json").json for place in (delta, lance, trevni)]
    assert [f["format"] for f in found] == ["delta", "lance", "trevni"]
    assert [f["rows"] for f in found] == [2, 6, 3]
    assert [f["version"] for f in found] == [1, 2, None]
    assert [f["partition_columns"] for f in found] == [["kind"], [], ["kind"]]
    assert [list(f)[:9] for f in found] == [list(found[0])[:9]] * 3
    assert found[0]["properties"]["delta.enableChangeDataFeed"] == "true"
    assert "changeDataFeed" in found[0]["features"]


def test_info_text_is_lines_without_colours(delta: str) -> None:
    done = run("info", delta)
    assert done.code == 0
    assert done.err == ""
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines() if not line.startswith(" "))
    assert (lines["format"], lines["version"], lines["rows"]) == ("delta", "1", "2")
    assert "\x1b" not in done.out
    assert not [line for line in done.out.splitlines() if line != line.rstrip()]


def test_info_of_an_older_version(delta: str) -> None:
    assert run("info", delta, "-v", "0", "--json").json["rows"] == 3
    assert run("info", delta, "--timestamp", "2999-01-01", "--json").json["version"] == 1


def test_schema_shows_the_role_of_columns(delta: str, lance: str, trevni: str) -> None:
    columns = run("schema", delta, "--json").json
    assert [(c["name"], c["type"], c["role"]) for c in columns] == [
        ("id", "long", None),
        ("kind", "string", "partition"),
        ("x", "double", None),
    ]
    assert [c["type"] for c in run("schema", lance, "--json").json] == ["int64", "string"]
    assert [c["role"] for c in run("schema", trevni, "--json").json] == [None, None, "partition"]
    assert run("schema", delta).out.split()[:5] == ["name", "type", "nullable", "role", "comment"]


def test_files_with_a_filter(delta: str, lance: str, trevni: str) -> None:
    assert len(run("files", delta, "--json").json) == 2
    (kept,) = run("files", delta, "--where", "kind = 'b'", "--json").json
    assert kept["partition_values"] == {"kind": "b"}
    assert kept["num_records"] == 1
    assert len(run("files", lance, "--json").json) == 2
    assert len(run("files", trevni, "--json").json) == 2


def test_limit_reports_omitted_files(delta: str) -> None:
    done = run("files", delta, "-n", "1")
    assert len(done.out.splitlines()) == 3
    assert done.err == "1 of 2 files\n"


def test_history_is_newest_first(delta: str, lance: str, trevni: str) -> None:
    commits = run("history", delta, "--json").json
    assert [c["version"] for c in commits] == [1, 0]
    assert [c["operation"] for c in commits] == ["DELETE", "WRITE"]
    assert commits[1]["userMetadata"] == "first"
    assert commits[1]["operationParameters"]["partitionBy"] == '["kind"]'
    assert len(run("history", delta, "-n", "1", "--json").json) == 1
    assert [c["version"] for c in run("history", lance, "--json").json] == [2, 1]
    done = run("history", trevni)
    assert (done.code, done.err) == (0, "Trevni tables have no versions\n")
    assert run("history", trevni, "--json").json == []


def test_log_shows_actions_as_written(delta: str, lance: str, trevni: str) -> None:
    newest, first = run("log", delta, "--json").json
    assert (newest["version"], first["version"]) == (1, 0)
    assert {name for action in first["actions"] for name in action} == {"commitInfo", "protocol", "metaData", "add"}
    assert [v["version"] for v in run("log", delta, "--from", "1", "--json").json] == [1]
    assert [v["version"] for v in run("log", delta, "--to", "0", "--json").json] == [0]
    assert [v["version"] for v in run("log", lance, "--json").json] == [2, 1]
    done = run("log", trevni)
    assert (done.code, done.out) == (2, "")
    assert "Trevni tables have no log" in done.err


def test_log_text_reports_omitted_actions(delta: str) -> None:
    done = run("log", delta, "--from", "0", "--to", "0", "--actions", "1")
    lines = done.out.splitlines()
    assert lines[0] == "version 0  _delta_log/00000000000000000000.json"
    assert lines[1].split()[0] == "commitInfo"
    assert lines[2] == "  ... and 4 more actions (--actions 0 shows all)"
    assert len(run("log", delta, "--to", "0", "--actions", "0").out.splitlines()) == 6
