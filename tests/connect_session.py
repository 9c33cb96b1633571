"""A session of Spark Connect for tests: its server runs in this process, on a port that nobody else has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from trilake.spark.session.compat import RELEASE
from trilake.spark.session.java import ensure_java

ROOT = Path(__file__).resolve().parent.parent


def connect_session(**settings: str) -> SparkSession:
    """The one Connect session of this process, which has no classic one beside it.

    Spark's own port, 15002, is that of every server on the machine; this one asks the system for a free one.
    """
    from pyspark.sql.connect.client import core  # late: needs gRPC, which only sessions of Connect do

    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    channel: Any = getattr(core, "DefaultChannelBuilder", core.ChannelBuilder)
    channel.default_port = staticmethod(_port)
    builder = SparkSession.builder.config("spark.connect.grpc.binding.port", "0").config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if RELEASE < (4, 0):  # the package has no server of Spark Connect: Spark fetches it from Maven Central
        server = f"org.apache.spark:spark-connect_2.12:{pyspark.__version__}"
        builder = builder.config("spark.jars.packages", server)
    return builder.remote("local[2]").getOrCreate()


def _port() -> int:
    """The port of the server, which runs in the JVM of the session that started it."""
    jvm: Any = SparkSession._instantiatedSession._jvm  # type: ignore[union-attr]
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(service.__getattr__("MODULE$").localPort())


def run_apart(script: str, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own: one has either a classic session or a Connect one."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
