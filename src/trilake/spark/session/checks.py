"""What a session is checked for before its tasks do work of trilake: once, and with what to do in the message."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from trilake.common.extras import need
from trilake.errors import UnsupportedSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("trilake.spark")

#: The oldest PySpark that works.
OLDEST = (3, 5)
#: How sessions are told which interpreter runs their tasks, from outside.
_SETTINGS = ("spark.pyspark.python", "spark.pyspark.driver.python")
_VARIABLE = "PYSPARK_PYTHON"
_PROBE_SECONDS = 60

_checked: WeakSet[Any] = WeakSet()


def check_pyspark() -> None:
    """See to it that PySpark is installed, and new enough.

    Raises ``MissingDependencyError`` and ``UnsupportedSparkError``.
    """
    need("pyspark", "Spark sessions")
    import pyspark

    installed = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdigit())
    if installed < OLDEST:
        raise UnsupportedSparkError(
            f"PySpark {pyspark.__version__} is too old", help='pip install "pyspark>=3.5", best of the newest 4.x'
        )


def check_session(spark: SparkSession) -> None:
    """See to it that the tasks of a session run on an interpreter that has this library, where that can be told.

    A local session that no one has told an interpreter gets that of this process: PySpark would take the first
    ``python3`` on the ``PATH``, which a script that is run by ``.venv/bin/python`` seldom means.

    Raises ``UnsupportedSparkError`` for a local session whose interpreter, chosen by someone, cannot do the work.
    """
    if spark in _checked:
        return
    context = getattr(spark, "_sc", None)
    if context is not None:  # over Spark Connect, the server chooses
        _check_workers(spark, context)
    _checked.add(spark)


def _check_workers(spark: SparkSession, context: Any) -> None:
    chosen = os.environ.get(_VARIABLE) or next((v for s in _SETTINGS if (v := context.getConf().get(s))), None)
    if _runs_this(str(context.pythonExec)):
        return
    master = str(context.master)
    if not master.startswith("local") or master.startswith("local-cluster"):
        if chosen is None:
            _log.warning(
                "tasks on %s run the python3 that their machines find; they need Python %d.%d with trilake installed:"
                " let the environment variable PYSPARK_PYTHON or the setting spark.pyspark.python name it before the"
                " session starts",
                master,
                *sys.version_info[:2],
            )
        return
    if chosen is None:
        context.pythonExec = sys.executable
        return
    problem = _problem(chosen)
    if problem is not None:
        raise UnsupportedSparkError(
            f"the session's tasks run {chosen}, which {problem}",
            help=f"leave {_VARIABLE} and spark.pyspark.python unset, or let them name {sys.executable}",
        )
    if not os.environ.get(_VARIABLE):
        # A setting alone: PySpark heeds it in what spark-submit starts, and in a script's own session runs python3.
        context.pythonExec = chosen


def _runs_this(executable: str) -> bool:
    path = shutil.which(executable)
    # Links are not followed: the interpreter of a virtual environment is a link to that of the system.
    return path is not None and os.path.abspath(path) == os.path.abspath(sys.executable)


@cache
def _problem(executable: str) -> str | None:
    """Why an interpreter cannot run our tasks; ``None`` where it can."""
    script = "import sys; print('%d.%d' % sys.version_info[:2]); import trilake, pyarrow"
    try:
        done = subprocess.run(
            [executable, "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"cannot be run: {e}"
    own = "{}.{}".format(*sys.version_info[:2])
    if done.stdout.strip() != own:
        return f"is Python {done.stdout.strip() or 'of an unknown version'}, and this process runs {own}"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"cannot import trilake: {lines[-1] if lines else 'no reason given'}"
    return None
