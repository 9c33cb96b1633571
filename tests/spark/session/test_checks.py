"""Checks of a session before trilake runs tasks on it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError, UnsupportedSparkError
from trilake.spark.session import checks


class _Session:
    """The parts of a session that are checked."""

    def __init__(self, python: str, master: str = "local[2]", **conf: str) -> None:
        settings = SimpleNamespace(get=conf.get)
        self._sc = SimpleNamespace(pythonExec=python, master=master, getConf=lambda: settings)


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_old_pyspark_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    checks.check_pyspark()
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(UnsupportedSparkError, match=r"needs PySpark 3\.5 or newer, got 3\.4\.4"):
        checks.check_pyspark()


def test_local_tasks_use_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if a script is run by .venv/bin/python, and another python3 is on the PATH.
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    session: Any = _Session("python3")
    checks.check_session(session)
    assert session._sc.pythonExec == sys.executable


def test_interpreter_configured_after_the_start_runs_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark reads the variable when the context starts; ``trilake.session()`` sets it, also for a running session."""
    session: Any = _Session("/somewhere/python3")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    checks.check_session(session)
    assert session._sc.pythonExec == sys.executable


def test_interpreter_from_a_setting_runs_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In scripts, PySpark 4.3 reads only ``PYSPARK_PYTHON``, and its tasks ran the first python3 on the PATH."""
    named = tmp_path / "named"
    named.write_text("#!/bin/sh\necho {}.{}\n".format(*sys.version_info[:2]))  # the probe of a usable interpreter
    named.chmod(0o755)
    (tmp_path / "python3").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    session: Any = _Session("python3", **{"spark.pyspark.python": str(named)})
    checks.check_session(session)
    assert session._sc.pythonExec == str(named)


def test_interpreter_without_trilake_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    bare = tmp_path / "bare"
    bare.write_text(f"#!/bin/sh\necho {version}\necho 'ModuleNotFoundError: No module named trilake' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    session: Any = _Session(str(bare))
    with pytest.raises(UnsupportedSparkError, match=r"cannot import trilake.*PYSPARK_PYTHON"):
        checks.check_session(session)
    older = tmp_path / "older"
    older.write_text("#!/bin/sh\necho 3.8\n")
    older.chmod(0o755)
    session = _Session(str(older), **{"spark.pyspark.python": str(older)})
    monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(UnsupportedSparkError, match=r"is Python 3\.8"):
        checks.check_session(session)


def test_cluster_without_configured_interpreter_warns(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = _Session("no-such-python3", "spark://host:7077")
    with caplog.at_level(logging.WARNING, "trilake.spark"):
        checks.check_session(session)
        checks.check_session(session)
    assert [r.message.count("PYSPARK_PYTHON") for r in caplog.records] == [1]
    assert session._sc.pythonExec == "no-such-python3"


_SCRIPT = """
import sys
import pyarrow as pa
import trilake

place = sys.argv[1]
if sys.argv[2] == "session":
    spark = trilake.session(cores=1, memory="512m")
else:
    from pyspark.sql import SparkSession
    from trilake.spark.session.java import ensure_java
    ensure_java()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    if sys.argv[2] == "install":
        trilake.install(spark)
trilake.write(spark.range(5), place, format="lance")
assert trilake.read(spark, place).count() == 5
print("all is well")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.soak) for how in ("session", "install")), "neither"]
)
def test_script_with_an_interpreter_outside_the_path(tmp_path: Path, how: str) -> None:
    """Tasks failed with ``No module named 'trilake'`` or PYTHON_VERSION_MISMATCH, for every first call."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    env["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "t"), how],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("all is well\n"), done.stderr[-3000:]


def test_tasks_are_started_in_one_module() -> None:
    package = Path(trilake.__file__).parent
    handing = {str(p.relative_to(package)) for p in package.rglob("*.py") if ".mapInArrow(" in p.read_text()}
    assert handing == {"spark/session/runner.py"}


def test_session_rejects_a_builder() -> None:
    """It was used as the name, and its settings were lost."""
    with pytest.raises(InvalidArgumentError, match="app_name must be a string"):
        trilake.session(SparkSession.builder)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["conf", "config", "master"])
def test_session_rejects_names_that_are_no_settings(name: str) -> None:
    """A dict of settings was taken for the value of one, and lost."""
    with pytest.raises(InvalidArgumentError, match=rf"'{name}' is not a setting of Spark.*\*\*{{"):
        trilake.session(**{name: {"spark.sql.ansi.enabled": "false"}})  # type: ignore[arg-type]
