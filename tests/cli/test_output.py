"""Output: safe for terminals, complete in pipes, and JSON for every command."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from tests.cli.running import run
from trilake.cli.app import application
from trilake.cli.exits import Exit, Problem
from trilake.cli.output import JsonOutput, Output, output, printable_lines
from trilake.cli.values import printable_json, python_values
from trilake.common.text import printable

ROOT = Path(__file__).resolve().parents[2]
#: A colour, a window title, a right-to-left override, a bell, a C1 sequence, rich markup, and a lone surrogate.
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202edlrow\u2066 \x9b2J [bold]b[/bold] :smile: \u2028"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("hostile") / "t")
    rows = pa.table({"n": [1], f"c {HOSTILE}": [HOSTILE], "part": [HOSTILE]})
    mapped = {"delta.columnMapping.mode": "name", "x\x1b[1m": HOSTILE, "delta.enableChangeDataFeed": "true"}
    trilake.write(rows, place, partition_by="part", properties=mapped, user_metadata=HOSTILE)
    return place


COMMANDS = (
    ["info"],
    ["schema"],
    ["files"],
    ["history"],
    ["log"],
    ["head"],
    ["count"],
    ["explain", "--where", "n = 1"],
    ["explain", "--files"],
    ["changes"],
    ["diff", "0"],
    ["verify"],
    ["repair"],
    ["vacuum", "--retention-hours", "0", "--no-retention-check"],
    ["optimize"],
    ["head", "--where", f"`{HOSTILE}` = 1"],
    ["head", "-c", HOSTILE],
)


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda c: " ".join(c[:2]).replace(HOSTILE, "hostile")[:20].strip("`\x1b")
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_table_values_cannot_control_the_terminal(hostile: str, command: list[str], form: list[str]) -> None:
    done = run(command[0], hostile, *command[1:], *form)
    assert not [c for c in OBEYED if c in done.out + done.err]
    assert done.code in (0, 2)
    if form and done.code == 0:
        json.loads(done.out)


def test_json_keeps_hostile_strings(hostile: str) -> None:
    (row,) = run("head", hostile, "--json").json
    assert row[f"c {HOSTILE}"] == row["part"] == HOSTILE
    assert run("info", hostile, "--json").json["properties"]["x\x1b[1m"] == HOSTILE


def test_rich_markup_is_printed_as_text(hostile: str) -> None:
    assert "[bold]b[/bold] :smile:" in run("head", hostile).out


@pytest.mark.parametrize("width", [30, 80, 200])
def test_terminal_output_fits_and_shows_every_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    rows = pa.table({f"column{i}": [f"v{i}", None] for i in range(12)})
    Output().rows(rows.schema, rows.to_batches())
    out = capsys.readouterr().out
    assert max(len(line) for line in _without_colours(out).splitlines()) <= width
    assert all(f"v{i}" in _without_colours(out) for i in range(12))


def _without_colours(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_pipe_gets_every_row_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"n": range(2500), "s": ["x" * 300 + "\n"] * 2500})
    Output().rows(rows.schema, rows.to_batches(max_chunksize=700))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2502
    assert {line.count("x" * 300 + "\\n") for line in lines[2:]} == {1}


def test_rows_without_columns_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"n": [1, 2]}).select([])
    Output().rows(rows.schema, rows.to_batches())
    JsonOutput().rows(rows.schema, rows.to_batches())
    assert capsys.readouterr().out == "2 rows without columns\n[\n{},\n{}\n]\n"


def test_every_command_has_json_and_plain_help() -> None:
    for command in application().registered_commands:
        name = command.callback.__name__
        shown = run(name, "--help")
        assert shown.code == 0
        assert "--json" in shown.out, name
    assert run().code in (0, 2)


def test_usage_errors_are_json_objects() -> None:
    for arguments in (
        ["head"],
        ["nope"],
        ["head", "t", "--nope"],
        ["head", "t", "-n", "x"],
        ["info", "t", "--format", "x"],
    ):
        done = run(*arguments, "--json")
        assert (done.code, done.out, done.error["code"]) == (2, "", "USAGE")
        assert run(*arguments).code == 2
    assert run("head", "t", "--option", "secret", "--json").error["code"] == "INVALID_ARGUMENT"


def test_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| ") and line.split()[1].isdigit()] != []
    stated = {int(line.split()[1]) for line in page.splitlines() if line.startswith("| ") and line.split()[1].isdigit()}
    assert stated == {int(code) for code in Exit}


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    names = [c.callback.__name__ for c in application().registered_commands]
    assert [n for n in names if f"`{n}`" not in page] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (trilake.errors.ConcurrentAppendError("x"), 5),
        (trilake.errors.LogGapError("x"), 6),
        (trilake.errors.MissingFileError("x"), 6),
        (trilake.errors.DeletionVectorError("x"), 6),
        (trilake.errors.ObjectNotFoundError("x"), 4),
        (trilake.errors.MissingDependencyError("x"), 7),
        (trilake.errors.UnknownOutcomeError("x"), 8),
        (trilake.errors.SchemaMismatchError("x"), 3),
        (trilake.errors.FilterError("x"), 2),
        (PermissionError(13, "no"), 8),
        (ZeroDivisionError(), 70),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else str(v),
)
def test_errors_map_to_exit_codes(error: Exception, code: int) -> None:
    assert Problem.of(error).exit == code
    assert output(True).__class__ is JsonOutput


def test_escaped_strings_stay_valid_json() -> None:
    assert printable("plain é 漢字 👩\u200d🚀") == "plain é 漢字 👩\u200d🚀"
    assert printable("a\tb\r\n\ud800\U000e0041") == "a\\tb\\r\\n\\ud800\\U000e0041"
    assert printable_lines("a\n\x1b") == "a\n\\x1b"
    text = json.dumps({"k": HOSTILE + "\U000e0041"}, ensure_ascii=False)
    assert json.loads(printable_json(text)) == {"k": HOSTILE + "\U000e0041"}
    assert not [c for c in OBEYED if c in printable_json(text)]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([0.1, float("inf"), -float("inf"), None], pa.float32()), [0.1, "Infinity", "-Infinity", None]),
        (pa.array([1.5], pa.float16()), [1.5]),
        (pa.array([b"\xff", None], pa.binary()), ["/w==", None]),
        (pa.array([1 << 62], pa.timestamp("us", "UTC")), ["<value out of range: 4611686018427387904>"]),
        (pa.array([400_000_000_000], pa.timestamp("s")), ["14645-06-30T15:06:40"]),
        (pa.array([0], pa.timestamp("ns", "Nowhere/At_All")), ["1970-01-01T00:00:00.000000000Z"]),
        (pa.array([1], pa.date32()), ["1970-01-02"]),
        (pa.array([86_400_000], pa.date64()), ["1970-01-02"]),
        (pa.array([1], pa.time64("us")), ["00:00:00.000001"]),
        (pa.array([5], pa.duration("s")), ["5 s"]),
        (pa.array([pa.MonthDayNano([1, 2, -500_000_000])]), ["P1M2DT-0.5S"]),
        (pa.array([None, "x"]).dictionary_encode(), [None, "x"]),
        (pa.array([{"a": [1.0, float("nan")]}, None]), [{"a": [1.0, "NaN"]}, None]),
        (pa.array([[1], None, [], [2, 3]]).slice(1), [None, [], [2, 3]]),
        (pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)), [[1.0, 2.0], None, [3.0, 4.0]]),
        (
            pa.array([[("k", b"v")], None, []], pa.map_(pa.string(), pa.binary())),
            [[{"key": "k", "value": "dg=="}], None, []],
        ),
        (pa.array([[("k", 1)], [("l", 2)]], pa.map_(pa.string(), pa.int8())).slice(1), [[{"key": "l", "value": 2}]]),
        (pa.array([], pa.float32()), []),
        (pa.chunked_array([[1], [2]]), [1, 2]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda v: str(getattr(v, "type", ""))[:30],
)
def test_values_convert_to_json_types(array: pa.Array, expected: list[object]) -> None:
    assert python_values(array) == expected
    json.dumps(expected, allow_nan=False)


def test_decimals_keep_all_their_digits() -> None:
    from decimal import Decimal

    assert python_values(pa.array([Decimal("12345678901234567890.123450")])) == ["12345678901234567890.123450"]
