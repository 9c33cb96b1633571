"""The command as a process: standard streams, exit codes, imported modules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import trilake

ROOT = Path(__file__).resolve().parents[2]
TRILAKE = [sys.executable, "-m", "trilake"]


def process(*arguments: str, input: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*TRILAKE, *arguments],
        input=input,
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def after_import(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)


def test_help_loads_only_needed_modules() -> None:
    done = after_import(
        "import sys; sys.argv = ['trilake', '--help']\n"
        "from trilake.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: print('code', e.code, file=sys.stderr)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    assert done.stderr.startswith("code 0")
    loaded = set(done.stderr.split())
    assert not loaded & {
        "duckdb",
        "pyspark",
        "numba",
        "pyarrow",
        "numpy",
        "pandas",
        "sqlglot",
        "orjson",
        "google.protobuf",
    }
    assert "convert" in done.stdout


def test_entry_point_is_the_module() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"trilake": "trilake.cli:main"}
    done = process("--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"trilake {trilake.__version__}\n")


def test_missing_typer_names_what_to_install() -> None:
    done = after_import("import sys; sys.modules['typer'] = None\nfrom trilake.cli import main; main()")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ['trilake: the command line needs typer: pip install "trilake[cli]"']


def test_pipe_in_and_out(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    done = process("write", place, "--from", "csv", input=b"n,s\n1,\xc3\xa9\n2,b\n")
    assert (done.returncode, done.stderr) == (0, b"")
    rows = process("query", f"SELECT s FROM '{place}' ORDER BY n", "--json", PYTHONIOENCODING="ascii")
    assert rows.stderr == b""
    assert b"\\xe9" in rows.stdout  # an output encoding without this letter must not fail
    assert json.loads(process("query", f"SELECT s FROM '{place}' ORDER BY n", "--json").stdout) == [
        {"s": "é"},
        {"s": "b"},
    ]


def test_only_terminals_get_colours_and_progress(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    process("write", place, "--from", "csv", input=b"n\n1\n")
    for arguments in (["info", place], ["head", place], ["info", "/no/where"], ["nope"]):
        done = process(*arguments, TERM="xterm-256color")
        assert b"\x1b" not in done.stdout + done.stderr


def test_errors_are_text_or_one_json_object(tmp_path: Path) -> None:
    people = process("count", str(tmp_path / "none"))
    assert (people.returncode, people.stdout) == (4, b"")
    assert people.stderr.startswith(b"error: [TABLE_NOT_FOUND] ")
    assert people.stderr.splitlines()[1].startswith(b"help: ")
    programs = process("count", str(tmp_path / "none"), "--json")
    assert (programs.returncode, programs.stdout) == (4, b"")
    error = json.loads(programs.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("TABLE_NOT_FOUND", 4)


def test_unexpected_error_is_one_line_with_optional_traceback() -> None:
    code = (
        "import trilake.api, sys; trilake.api.open = None; sys.argv = ['trilake', 'count', 't']\n"
        "from trilake.cli import main; main()"
    )
    done = after_import(code)
    assert done.returncode == 70
    first, second = done.stderr.splitlines()
    assert first == "error: [UNEXPECTED] unexpected TypeError: 'NoneType' object is not callable"
    assert second == "help: set TRILAKE_DEBUG=1 and run it again for a traceback"
    debugged = after_import(f"import os; os.environ['TRILAKE_DEBUG'] = '1'\n{code}")
    assert debugged.returncode == 70
    assert debugged.stderr.startswith("Traceback")


def test_closed_pipe_ends_the_command_silently(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    trilake.write([{"n": n, "s": "x" * 100} for n in range(20_000)], place)
    with subprocess.Popen(
        [*TRILAKE, "query", f"FROM '{place}'", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as p:
        assert p.stdout is not None
        assert p.stderr is not None
        assert p.stdout.readline() == b"[\n"
        p.stdout.close()
        assert p.stderr.read() == b""
        assert p.wait(120) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
def test_full_disk_is_an_error(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    trilake.write([{"n": 1}], place)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*TRILAKE, "count", place], stdout=full, stderr=subprocess.PIPE, check=False, timeout=120)
    assert done.returncode == 8
    assert re.fullmatch(rb"error: \[OS\] .*No space left on device\n", done.stderr)


def test_interrupt_prints_one_word(tmp_path: Path) -> None:
    code = (
        "import trilake.api, sys\n"
        "def wait(*_, **__): raise KeyboardInterrupt\n"
        "trilake.api.open = wait; sys.argv = ['trilake', 'count', 't']\n"
        "from trilake.cli import main; main()"
    )
    done = after_import(code)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "interrupted")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_formats(shell: str) -> None:
    script = process("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0
    assert b"_TRILAKE_COMPLETE" in script.stdout


def test_completion_offers_matching_values() -> None:
    def offered(words: str, at: int) -> list[str]:
        done = process(_TRILAKE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(at))
        return done.stdout.decode().split()

    assert offered("trilake ver", 1) == ["verify"]
    assert offered("trilake info --format l", 3) == ["lance"]
