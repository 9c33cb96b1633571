"""Start a local Spark session for demos, tests and benchmarks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from trilake.spark.session.java import ensure_java

_LOGGING = Path(__file__).with_name("log4j2.properties")


def local_session(
    app_name: str = "trilake", *, cores: int = 2, memory: str = "2g", **conf: bool | float | int | str
) -> SparkSession:
    """Start a Spark session on this machine, or return the running one.

    It chooses a Java (see :mod:`trilake.spark.session.java`), logs only errors, has no web UI, listens only on the
    loopback interface, uses UTC, moves rows to and from Python as Arrow, and has as many shuffle partitions as cores.

    Parameters
    ----------
    app_name: the name of the application.
    cores: the number of task threads.
    memory: the heap of the JVM, which is both driver and executor, such as ``"2g"``.
    conf: more settings, which override those above; their names have dots, so pass them as
        ``**{"spark.sql.ansi.enabled": False}``.

    A running session keeps its cores, memory, Java and other static settings.

    Raises ``JavaNotFoundError`` if there is no suitable Java.
    """
    ensure_java()
    # PySpark would use the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.execution.arrow.pyspark.enabled": True,
        **conf,
    }
    return SparkSession.builder.appName(app_name).master(f"local[{cores}]").config(map=settings).getOrCreate()


def connect_session(app_name: str, remote: str, **conf: bool | float | int | str) -> SparkSession:
    """A session on a Spark Connect server; ``local[...]`` starts a server on this machine.  Raises
    ``JavaNotFoundError`` if a local server needs a Java and there is none."""
    if remote.startswith("local"):
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for the server's tasks
    builder = SparkSession.builder.appName(app_name).remote(remote)
    for key, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
