"""Checks of a session before its tasks run trilake code: once per session; the message says how to fix a problem."""

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

#: The oldest supported PySpark.
OLDEST = (3, 5)
#: Settings that choose the Python of tasks.
_SETTINGS = ("spark.pyspark.python", "spark.pyspark.driver.python")
_VARIABLE = "PYSPARK_PYTHON"
_PROBE_SECONDS = 60

_checked: WeakSet[Any] = WeakSet()


def check_pyspark() -> None:
    """Check that PySpark is installed and recent enough.  Raises ``MissingDependencyError`` and
    ``UnsupportedSparkError``."""
    need("pyspark", "Spark sessions")
    import pyspark

    installed = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdigit())
    if installed < OLDEST:
        raise UnsupportedSparkError(
            f"trilake needs PySpark 3.5 or newer, got {pyspark.__version__}",
            help='pip install "pyspark>=3.5", preferably the newest 4.x',
        )


def check_session(spark: SparkSession) -> None:
    """Check that the tasks of a session run a Python that has trilake, if that can be checked.  A local session without
    a configured Python gets this process's Python, since PySpark would use the first ``python3`` on the ``PATH``.
    Raises ``UnsupportedSparkError``."""
    if spark in _checked:
        return
    context = getattr(spark, "_sc", None)
    if context is not None:  # with Spark Connect, the server chooses
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
                "tasks on %s run the first python3 on their PATH; they need Python %d.%d with trilake installed: set"
                " the environment variable PYSPARK_PYTHON or the setting spark.pyspark.python to its path before the"
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
            help=f"unset {_VARIABLE} and spark.pyspark.python, or set them to {sys.executable}",
        )
    # PySpark ignores a variable set after the context's start, and uses the setting only with spark-submit.
    context.pythonExec = chosen


def _runs_this(executable: str) -> bool:
    path = shutil.which(executable)
    # Do not follow links: the interpreter of a virtual environment is a link to the system's.
    return path is not None and os.path.abspath(path) == os.path.abspath(sys.executable)


@cache
def _problem(executable: str) -> str | None:
    """Why an interpreter cannot run trilake's tasks; ``None`` if it can."""
    script = "import sys; print('%d.%d' % sys.version_info[:2]); import trilake, pyarrow"
    try:
        result = subprocess.run(
            [executable, "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"cannot be run: {e}"
    current = "{}.{}".format(*sys.version_info[:2])
    if result.stdout.strip() != current:
        return f"is Python {result.stdout.strip() or 'of an unknown version'}, but this process runs {current}"
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        return f"cannot import trilake: {lines[-1] if lines else 'no reason given'}"
    return None
