"""write, convert, optimize, vacuum and restore: each is one commit, and nothing is deleted without a flag."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.cli.running import run

CSV = "id,zip,at\n1,00123,2024-01-01T00:00:00Z\n2,,\n"
JSON_LINES = '{"id": 1, "zip": "00123", "at": "2024-01-01T00:00:00Z"}\n{"id": 2}\n'
WANTED = [{"id": 1, "zip": "00123", "at": "2024-01-01T00:00:00.000000Z"}, {"id": 2, "zip": None, "at": None}]


def rows(place: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = run("query", f"SELECT * FROM '{place}' ORDER BY id", "--json").json
    return found


def sources(folder: Path) -> dict[str, Path]:
    """The same rows in every format."""
    data = pa.table(
        {"id": [1, 2], "zip": ["00123", None], "at": pa.array([1704067200000000, None], pa.timestamp("us", "UTC"))}
    )
    (folder / "a.csv").write_text(CSV)
    (folder / "a.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (folder / "a.tsv").write_text(CSV.replace(",", "\t"))
    (folder / "a.jsonl").write_text(JSON_LINES)
    (folder / "a.json").write_text(json.dumps([json.loads(line) for line in JSON_LINES.splitlines()]))
    pq.write_table(data, folder / "a.parquet")
    with pa.ipc.new_stream(folder / "a.arrows", data.schema) as stream:
        stream.write_table(data)
    with pa.ipc.new_file(folder / "a.arrow", data.schema) as file:
        file.write_table(data)
    return {p.name: p for p in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sources(tmp_path_factory.mktemp("inputs"))


def typed(name: str) -> tuple[str, ...]:
    """Column types, for files without types."""
    return () if name.startswith(("a.parquet", "a.arrow")) else ("--type", "zip=string", "--type", "at=timestamp")


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.json", "a.parquet", "a.arrows", "a.arrow"]
)
def test_write_file_of_every_format(tmp_path: Path, inputs: dict[str, Path], name: str) -> None:
    done = run("write", tmp_path / "t", inputs[name], *typed(name), "--json")
    assert done.code == 0, done.err
    assert (done.json["version"], done.json["rows_added"]) == (0, 2)
    assert rows(tmp_path / "t") == WANTED


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.parquet", "a.arrows", "a.arrow"])
def test_write_standard_input_of_every_format(tmp_path: Path, inputs: dict[str, Path], name: str) -> None:
    how = ["--from", "csv"] if name == "a.csv" else []
    done = run("write", tmp_path / "t", *how, *typed(name), input=inputs[name].read_bytes())
    assert done.code == 0, done.err
    assert rows(tmp_path / "t") == WANTED


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_write_from_named_pipe(tmp_path: Path, inputs: dict[str, Path], name: str) -> None:
    """The pipe of ``<(...)`` is read once, from its beginning."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_bytes(inputs[name].read_bytes()))
    writer.start()
    how = ["--from", "csv"] if name == "a.csv" else []
    done = run("write", tmp_path / "t", pipe, *how, *typed(name))
    writer.join()
    assert done.code == 0, done.err
    assert rows(tmp_path / "t") == WANTED


def test_csv_columns_get_the_types_of_the_table(tmp_path: Path, inputs: dict[str, Path]) -> None:
    run("write", tmp_path / "t", inputs["a.parquet"])
    done = run("write", tmp_path / "t", inputs["a.csv"], inputs["a.jsonl"], "-m", "append", "--json")
    assert done.json["rows_added"] == 4
    assert [r["zip"] for r in rows(tmp_path / "t")] == ["00123"] * 3 + [None] * 3


def test_missing_columns_get_their_defaults(tmp_path: Path) -> None:
    """JSON rows had nulls for them: defaults were not applied, and generated and identity columns were rejected."""
    columns = {"a": "int", "d": "int", "g": "int", "i": "bigint"}
    trilake.create(tmp_path / "t", columns, defaults={"d": "7"}, generated={"g": "a * 2"}, identity=["i"])
    for name, text in {"1.json": '{"a": 1}', "2.json": '[{"a": 2}, {"a": 3, "d": null}]', "4.csv": "a\n4\n"}.items():
        (tmp_path / name).write_text(text)
        run("write", tmp_path / "t", tmp_path / name, "-m", "append")
    found = trilake.open(tmp_path / "t").to_arrow(["a", "d", "g"]).sort_by("a").to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, 7, 2), (2, None, 4), (3, None, 6), (4, 7, 8)]
    for name, text in {"5.json": '{"a": 5, "d": 1}', "6.json": '{"a": 6}'}.items():
        (tmp_path / name).write_text(text)
    run("write", tmp_path / "t", tmp_path / "5.json", tmp_path / "6.json", "-m", "append")
    late = '{"a": 8}\n' * 120_000 + '{"a": 9, "d": 1}\n'
    done = run("write", tmp_path / "t", "--from", "json", "-m", "append", input=late)
    assert (done.code, "after the first megabyte" in done.err) == (3, True)
    new = run("write", tmp_path / "new", "--from", "json", input=late)
    assert (new.code, "after the first megabyte" in new.err) == (3, True)
    assert run("write", tmp_path / "new", "--from", "json", "--type", "d=int", input=late).code == 0
    trilake.write(pa.table({"a": [1], "s": ["x"]}), tmp_path / "l", format="lance")
    run("write", tmp_path / "l", tmp_path / "6.json", "-m", "append")
    assert trilake.open(tmp_path / "l").to_arrow().column("s").to_pylist() == ["x", None]


def test_option_that_does_not_apply_to_the_format_is_rejected(tmp_path: Path, inputs: dict[str, Path]) -> None:
    for name, option in (
        ("a.jsonl", ("--delimiter", ";")),
        ("a.json", ("--null", "x")),
        ("a.parquet", ("--no-header",)),
        ("a.arrow", ("--type", "id=int")),
    ):
        done = run("write", tmp_path / "t", inputs[name], *option)
        assert (done.code, option[0] in done.err) == (2, True)
    assert not (tmp_path / "t").exists()


def test_integers_beyond_bigint_keep_their_digits(tmp_path: Path) -> None:
    data = "n,long,x\n1,12345678901234567890,12345678901234567890\n2,,1.5\n3,-7,2\n"
    (tmp_path / "a.csv").write_text(data)
    for place, how in ("piped", ["--from", "csv"]), ("named", [tmp_path / "a.csv"]):
        done = run("write", tmp_path / place, *how, input=data)
        assert done.code == 0, done.err
        found = run("query", f"SELECT * FROM '{tmp_path}/{place}' ORDER BY n", "--json").json
        assert [r["long"] for r in found] == ["12345678901234567890", None, "-7"]
        assert [r["x"] for r in found] == [12345678901234567890.0, 1.5, 2.0]


def test_quoted_empty_string_is_not_null(tmp_path: Path) -> None:
    run("write", tmp_path / "t", "--from", "csv", "--type", "s=string", input='n,s\n1,""\n2,\n3,NA\n')
    assert [r["s"] for r in run("query", f"SELECT * FROM '{tmp_path}/t' ORDER BY n", "--json").json] == ["", None, "NA"]


@pytest.mark.parametrize(
    ("data", "how", "code", "words"),
    [
        ("id,zip\nfoo,1\n", ["--from", "csv", "--type", "id=bigint"], 3, "a value does not fit its column"),
        ('{"a": 1}\n{"a": "x"}\n', [], 3, "a value does not fit its column"),
        ("id\n1\n", [], 2, "cannot detect the format of the rows"),
        ("", ["--from", "csv"], 6, "the file cannot be read"),
        ("PAR1 and nothing more", [], 6, "the file cannot be read"),
        ('[{"a": 1}, 2]', [], 6, "must be an object"),
        ("a\n1\n", ["--from", "csv", "--type", "a"], 2, "has no value"),
        ("a\n1\n", ["--from", "csv", "--type", "a=nonsense"], 2, "nonsense"),
        ("a\n1\n", ["--from", "csv", "--delimiter", ";;"], 2, "--delimiter must be one ASCII character"),
        ("a\n1\n", ["--from", "csv", "--delimiter", ""], 2, "--delimiter must be one ASCII character"),
        ("a\n1\n", ["--from", "csv", "--type", "b=int"], 2, "--type: column 'b' not found"),
    ],
)
def test_unreadable_rows_write_nothing(tmp_path: Path, data: str, how: list[str], code: int, words: str) -> None:
    done = run("write", tmp_path / "t", *how, input=data)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_write_creates_tables_of_every_format(tmp_path: Path) -> None:
    for format in "delta", "lance", "trevni":
        done = run("write", tmp_path / format, "--from", "csv", "--format", format, "--json", input="n,s\n1,a\n")
        assert done.json["format"] == format
        assert run("info", tmp_path / format, "--json").json["format"] == format
        again = run("write", tmp_path / format, "--from", "csv", "-m", "append", input="n,s\n2,b\n")
        assert again.code == 0, again.err
        assert run("count", tmp_path / format).out == "2\n"


def test_existing_table_is_rejected(tmp_path: Path) -> None:
    run("write", tmp_path / "t", "--from", "csv", input="n\n1\n")
    done = run("write", tmp_path / "t", "--from", "csv", "--json", input="n\n2\n")
    assert (done.code, done.error["code"]) == (3, "TABLE_EXISTS")
    assert "--mode append" in done.error["help"]
    replaced = run(
        "write", tmp_path / "t", "--from", "csv", "-m", "overwrite", "--replace-where", "n = 1", input="n\n1\n"
    )
    assert replaced.code == 0, replaced.err
    assert run("count", tmp_path / "t").out == "1\n"


def test_convert_reports_that_rows_were_compared(tmp_path: Path, inputs: dict[str, Path]) -> None:
    run("write", tmp_path / "t", inputs["a.parquet"], "--partition-by", "zip")
    done = run("convert", tmp_path / "t", tmp_path / "p", "--to", "parquet", "--no-partitions", "--json")
    assert (done.json["rows"], done.json["verified"], done.json["version"]) == (2, True, None)
    back = run("convert", tmp_path / "p", tmp_path / "t2", "--to", "delta", "-w", "id > 1", "-c", "id", "--json")
    assert back.json["rows"] == 1
    assert run("convert", tmp_path / "t", tmp_path / "t2", "--to", "lance").code == 3
    assert run("convert", tmp_path / "t", tmp_path / "x", "--to", "lance", "-m", "ignore").code == 2


def test_convert_writes_iceberg_metadata(tmp_path: Path, inputs: dict[str, Path]) -> None:
    properties = ("delta.enableIcebergCompatV2=true", "delta.universalFormat.enabledFormats=iceberg")
    run("write", tmp_path / "t", inputs["a.parquet"], *(a for p in properties for a in ("--property", p)))
    (tmp_path / "t/metadata/v1.metadata.json").unlink()
    done = run("convert", tmp_path / "t", "--to", "iceberg-metadata", "--json")
    assert done.json["source_version"] == 0
    assert (tmp_path / "t/metadata/v1.metadata.json").exists()
    assert run("convert", tmp_path / "t", tmp_path / "x", "--to", "iceberg-metadata").code == 2
    assert run("convert", tmp_path / "t", "--to", "lance").code == 2


def test_optimize_purges_deleted_rows(tmp_path: Path) -> None:
    place = tmp_path / "t"
    trilake.write({"id": list(range(100))}, place, properties={"delta.enableDeletionVectors": "true"})
    trilake.open(place).delete("id = 7")
    assert run("optimize", place, "--json").json["files_removed"] == 0
    assert run("optimize", place, "--purge", "--json").json["files_removed"] == 1
    assert trilake.open(place).count() == 99
    assert run("optimize", place, "--purge", "--full").code == 2


def test_optimize_supports_delta_and_lance_only(tmp_path: Path) -> None:
    for format in "delta", "lance", "trevni":
        for n in 1, 2:
            run("write", tmp_path / format, "--from", "csv", "--format", format, "-m", "append", input=f"n\n{n}\n")
    done = run("optimize", tmp_path / "delta", "--json")
    assert (done.json["files_removed"], done.json["files_added"], done.json["version"]) == (2, 1, 2)
    assert done.json["metrics"]["numFilesRemoved"] == 2
    done = run("optimize", tmp_path / "lance", "--json")
    assert (done.json["fragments_removed"], done.json["fragments_added"]) == (2, 1)
    assert run("optimize", tmp_path / "trevni").code == 2
    assert run("optimize", tmp_path / "lance", "--full").code == 2
    assert run("optimize", tmp_path / "delta", "--target-rows", "5").code == 2


NOW = ["--retention-hours", "0", "--no-retention-check"]


def overwritten(place: Path, format: str = "delta") -> Path:
    for n in 1, 2:
        trilake.write([{"n": n}], place, format=format, mode="overwrite")
    return place


def test_vacuum_deletes_nothing_by_default(tmp_path: Path) -> None:
    place = overwritten(tmp_path / "t")
    files = sorted(place.glob("*.parquet"))
    found = run("vacuum", place, *NOW, "--json").json
    assert (found["deleted"], found["files"], len(found["paths"])) == (False, 1, 1)
    people = run("vacuum", place, *NOW)
    assert "would be deleted" in people.err
    assert found["paths"][0] in people.out
    assert run("vacuum", place, *NOW, "--delete").code == 2  # no terminal for the prompt
    assert sorted(place.glob("*.parquet")) == files
    assert run("vacuum", place, "--retention-hours", "0", "--delete", "--yes").code == 2  # shorter than the table's
    gone = run("vacuum", place, *NOW, "--delete", "--yes", "--json").json
    assert (gone["deleted"], gone["files"]) == (True, 1)
    assert len(list(place.glob("*.parquet"))) == 1
    assert run("head", place, "--json").json == [{"n": 2}]


@pytest.mark.parametrize(("answer", "left"), [("n\n", 2), ("y\n", 1)])
def test_vacuum_asks_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    place = overwritten(tmp_path / "t")
    monkeypatch.setattr("trilake.cli.maintenance.must_be_able_to_ask", lambda json: None)
    done = run("vacuum", place, *NOW, "--delete", input=answer)
    assert "Delete 1 file (" in done.err
    assert done.code == (0 if left == 1 else 3)
    assert len(list(place.glob("*.parquet"))) == left


def test_vacuum_of_lance_removes_old_versions(tmp_path: Path) -> None:
    place = overwritten(tmp_path / "l", "lance")
    assert run("vacuum", place, "--json").json["files"] == 0
    found = run("vacuum", place, "--retention-hours", "0", "--json").json
    assert "_versions/18446744073709551614.manifest" in found["paths"]
    assert run("count", place, "-v", "1").out == "1\n"
    gone = run("vacuum", place, "--retention-hours", "0", "--delete", "--yes", "--json").json
    assert gone["paths"] == found["paths"]
    assert run("count", place, "-v", "1").code == 4
    assert run("count", place).out == "1\n"


def test_drop_deletes_nothing_by_default(tmp_path: Path) -> None:
    place = overwritten(tmp_path / "t")
    listed = run("drop", place, "--dry-run", "--json").json
    assert (listed["deleted"], listed["files"], len(listed["paths"])) == (False, 4, 4)
    assert "4 files" in run("drop", place, "--dry-run").err
    assert run("drop", place).code == 2  # no terminal for the prompt
    assert run("count", place).out == "1\n"
    assert run("drop", place, "--yes", "--json").json == {**listed, "deleted": True}
    assert not place.exists()
    assert run("drop", place, "--yes").code == 4


@pytest.mark.parametrize(("answer", "code"), [("n\n", 3), ("y\n", 0)])
def test_drop_lists_and_asks_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    place = overwritten(tmp_path / "t")
    monkeypatch.setattr("trilake.cli.maintenance.must_be_able_to_ask", lambda json: None)
    done = run("drop", place, input=answer)
    assert "_delta_log/00000000000000000000.json" in done.out
    assert "Delete the table" in done.err
    assert (done.code, place.exists()) == (code, code != 0)


@pytest.mark.parametrize(("format", "old"), [("delta", "0"), ("lance", "1")])
def test_restore_returns_to_a_version(tmp_path: Path, format: str, old: str) -> None:
    place = overwritten(tmp_path / "t", format)
    done = run("restore", place, "-v", old, "--json")
    assert done.json["restored_version"] == int(old)
    assert run("head", place, "--json").json == [{"n": 1}]
    assert run("restore", place).code == 2
    assert run("restore", place, "-v", "99").code == 4


def test_verify_passes_a_sound_table_and_names_faults(tmp_path: Path) -> None:
    place = overwritten(tmp_path / "t")
    good = run("verify", place, "--json")
    assert (good.code, good.json["ok"]) == (0, True)
    (place / trilake.open(place).files()["path"][0].as_py()).unlink()
    bad = run("verify", place, "--json")
    assert bad.code == 1
    assert bad.json["findings"][0]["severity"] == "error"
    people = run("verify", place)
    assert people.code == 1
    assert bad.json["findings"][0]["code"] in people.out


def test_repair_text_json_and_exit_codes_agree(tmp_path: Path) -> None:
    place = overwritten(tmp_path / "t")
    (place / trilake.open(place).files()["path"][0].as_py()).unlink()
    plan = run("repair", place, "--json")
    assert (plan.code, plan.json["ok"], len(plan.json["steps"]), plan.json["left"]) == (1, False, 1, [])
    assert plan.json["steps"][0]["needs"] == "--accept-loss"
    assert "needs --accept-loss" in run("repair", place).out
    accepted = run("repair", place, "--accept-loss").out
    assert "planned delta.drop-missing-files" in accepted  # the message suggested the flag that was passed
    assert accepted.strip().endswith("nothing was changed: pass --run to run the steps")
    kept = run("repair", place, "--run", "--yes", "--json")
    assert (kept.code, kept.json["ok"], kept.json["rows_lost"]) == (1, False, 0)
    assert [f["code"] for f in kept.json["left"]] == ["delta.file-missing"]
    assert "trilake repair with --accept-loss" in kept.json["left"][0]["help"]
    assert "trilake repair with --accept-loss" in run("verify", place).out
    done = run("repair", place, "--run", "--yes", "--accept-loss", "--json")
    assert (done.code, done.json["ok"], done.json["left"]) == (0, True, [])
    assert done.json["rows_lost"] > 0


def test_repair_changes_nothing_by_default(tmp_path: Path) -> None:
    place = overwritten(tmp_path / "t")
    done = run("repair", place, "--json")
    assert (done.code, done.json["dry_run"], done.json["steps"]) == (0, True, [])
    assert run("repair", place, "--run").code == 2  # no terminal for the prompt
    assert run("repair", place, "--run", "--yes", "--json").json["dry_run"] is False
