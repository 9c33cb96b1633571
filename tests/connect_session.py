"""A Spark Connect session for tests: its server runs in this process, on a free port."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from trilake.spark.session.java import ensure_java

ROOT = Path(__file__).resolve().parent.parent


def connect_session(**settings: str) -> SparkSession:
    """The Connect session of this process, which has no classic session.

    Spark's default port, 15002, is shared by all servers on the machine; this one uses a free port.  The
    package of PySpark 3.5 has no server: ``TRILAKE_CONNECT_SERVER`` names an interpreter whose PySpark has one.
    """
    from pyspark.sql.connect.client import core  # late: needs gRPC, for Connect sessions only

    ensure_java()
    server = os.environ.get("TRILAKE_CONNECT_SERVER")
    if server is not None:
        return SparkSession.builder.remote(f"sc://127.0.0.1:{_served(server, settings)}").getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    channel: Any = getattr(core, "DefaultChannelBuilder", core.ChannelBuilder)
    channel.default_port = staticmethod(_port)
    builder = SparkSession.builder.config("spark.connect.grpc.binding.port", "0").config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.remote("local[2]").getOrCreate()


def _served(python: str, settings: dict[str, str]) -> int:
    """Start a server with this interpreter's PySpark, which ends with this process; returns its port."""
    found = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"], capture_output=True, check=True
    )
    home = found.stdout.decode().strip()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    given = {"spark.connect.grpc.binding.port": str(port), "spark.ui.enabled": "false", **settings}
    conf = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    main = ["--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    env = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    submit = f"{home}/bin/spark-submit"
    server = subprocess.Popen([submit, *main, *conf], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(server.terminate)
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return port
        time.sleep(0.2)
    raise AssertionError(f"no server of Spark Connect came up with {python}")


def _port() -> int:
    """The port of the server, in the JVM of the session that started it."""
    jvm: Any = SparkSession._instantiatedSession._jvm  # type: ignore[union-attr]
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(service.__getattr__("MODULE$").localPort())


def run_apart(script: str, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate process: a process has either a classic or a Connect session."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
