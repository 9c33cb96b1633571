"""The matrix: every public call once, on the current Spark release and kind of session.

``TRILAKE_MATRIX_MODE`` chooses the session: ``classic``, ``connect``, ``local-cluster`` or ``standalone``; ``make
matrix`` sets it.  Without it the calls are left out: the other tests make each of them on the release that is locked.
``TRILAKE_MATRIX_RESULTS`` names a file that gets a line of JSON for each call, from which
``scripts/matrix`` makes the table of docs/compatibility.md.

A call that a release cannot do is marked with :func:`tests.matrix.calls.since`: there it must raise
``UnsupportedSparkError``, and the table says so.  A case of a corpus that a release cannot do records a property
``rejected`` with the reason; of those the table has the number that work.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trilake
from tests.matrix.calls import MODE, Lake
from trilake.spark.session.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULTS = os.environ.get("TRILAKE_MATRIX_RESULTS")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect the calls unless ``make matrix`` runs."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "TRILAKE_MATRIX_MODE" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="make matrix runs these, on every release of Spark"))


@pytest.fixture(scope="session")
def matrix_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process's mode."""
    if MODE == "classic":
        yield request.getfixturevalue("spark")
        return
    from pyspark.sql import SparkSession

    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = tmp_path_factory.mktemp("warehouse").as_uri()
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", warehouse).config("spark.ui.enabled", "false")
    if MODE == "connect":
        from tests.connect_session import connect_session  # late: needs gRPC, for this mode only

        session = connect_session(**{"spark.sql.warehouse.dir": warehouse})
        yield session
        with suppress(Exception):
            session.stop()
        return
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    if MODE == "local-cluster":
        session = builder.master("local-cluster[2,1,1024]").getOrCreate()
        yield session
        session.stop()
        return
    assert MODE == "standalone", f"TRILAKE_MATRIX_MODE is {MODE!r}"
    with _standalone(tmp_path_factory.mktemp("cluster")) as master:
        session = builder.master(master).config("spark.executor.memory", "1g").getOrCreate()
        yield session
        session.stop()


@contextmanager
def _standalone(folder: Path) -> Iterator[str]:
    """A master and a worker of Spark's standalone cluster manager, on the loopback interface."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = _free_port()
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    env["SPARK_WORKER_DIR"] = str(folder)
    spark_class = str(home / "bin" / "spark-class")
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    package = "org.apache.spark.deploy"
    programs = [
        [spark_class, f"{package}.master.Master", *where, "--port", str(port)],
        [
            spark_class,
            f"{package}.worker.Worker",
            *where,
            "--cores",
            "2",
            "--memory",
            "2g",
            f"spark://127.0.0.1:{port}",
        ],
    ]
    with (folder / "cluster.log").open("wb") as log:
        started = []
        try:
            for program in programs:
                started.append(subprocess.Popen(program, env=env, stdout=log, stderr=log))
                _listening(port)
            yield f"spark://127.0.0.1:{port}"
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(30)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _listening(port: int) -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError(f"no one listens on port {port}")


@pytest.fixture(scope="session")
def lake(matrix_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The session with trilake's formats registered."""
    trilake.register(matrix_session)
    yield Lake(matrix_session, tmp_path_factory.mktemp("lake"))
    if MODE != "classic":
        trilake.unregister(matrix_session)


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Record the outcome of a call."""
    outcome: Any = yield
    report = outcome.get_result()
    if _RESULTS is None or report.when not in ("setup", "call") or (report.when == "setup" and report.passed):
        return
    if report.skipped:  # cases of a missing corpus
        return
    function: Callable[..., None] | None = getattr(item, "function", None)
    title = (getattr(function, "__doc__", None) or item.name).strip().splitlines()[0]
    rejected = getattr(function, "_matrix_rejected", False) or any(n == "rejected" for n, _ in item.user_properties)
    result = "failed" if not report.passed else "rejected" if rejected else "works"
    line = {"test": item.nodeid, "title": title, "mode": MODE, "result": result}
    if total := getattr(function, "_matrix_counted", 0):
        line["cases"] = total
    with Path(_RESULTS).open("a") as f:
        f.write(json.dumps(line) + "\n")
