"""What all tests share: hypothesis profiles, one Spark session, and the way to the shared corpora."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from trilake.errors import TrilakeError
from trilake.spark.session.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
SOAK = os.environ.get("TRILAKE_SOAK", "") not in ("", "0")

# Spark's processes live for seconds here: Java's second compiler would take two fifths of their processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1")

# A deadline would fail tests on a busy machine.  CI tries the same examples every time, so that a red run can be
# repeated; new examples are found on developers' machines and by soak runs.
_too_slow = [HealthCheck.too_slow]
settings.register_profile("trilake", deadline=None, suppress_health_check=_too_slow)
settings.register_profile("trilake-ci", deadline=None, suppress_health_check=_too_slow, derandomize=True, database=None)
settings.register_profile("trilake-soak", deadline=None, suppress_health_check=_too_slow, max_examples=5_000)
settings.load_profile("trilake-soak" if SOAK else "trilake-ci" if os.environ.get("CI") else "trilake")


def pytest_report_header() -> str:
    """Say which Java runs Spark, or why none does."""
    try:
        return f"spark: {find_java()}"
    except TrilakeError as e:
        return f"spark: {e}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the soak tests, and the time limit of the others when soaking."""
    for item in items:
        if item.get_closest_marker("soak") and not SOAK:
            item.add_marker(pytest.mark.skip(reason="a soak test: make soak runs it"))
        if SOAK:
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the whole run; tests put back what they change in its settings."""
    from trilake.spark.session.local import local_session  # late: most runs of a few tests need no PySpark

    warehouse = tmp_path_factory.mktemp("spark-warehouse")
    session = local_session("trilake tests", **{"spark.sql.warehouse.dir": warehouse.as_uri()})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of corpora, specs and facts: what ``TRILAKE_SHARED`` names, or ``../shared`` beside the repository.

    Skips the test where neither is there.  The folder is read-only: copy a table before writing to it.
    """
    named = os.environ.get("TRILAKE_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared"
    if (folder / "corpus").is_dir():
        return folder
    if named:
        pytest.fail(f"TRILAKE_SHARED names {named}, which holds no folder 'corpus'")
    pytest.skip("the shared corpora are not here: put them beside the repository, or let TRILAKE_SHARED name them")


def _put_one_at_a_time() -> None:
    """Make conditional puts of the server atomic, as those of S3 are: moto 5.2 looks whether a key is there and then
    writes it, and two threads may both find nothing."""
    from moto.s3.responses import S3Response

    put, lock = S3Response.put_object, threading.RLock()

    def one_at_a_time(self: S3Response) -> Any:
        with lock:
            return put(self)

    S3Response.put_object = one_at_a_time  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def s3_options() -> Iterator[Mapping[str, str]]:
    """Options for a bucket ``lake`` on a server in this process, on the loopback interface."""
    import boto3  # late: most runs of a few tests need no S3, and these take a second to import
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    _put_one_at_a_time()
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "allow_http": "true",
        "max_retries": "2",
        "retry_timeout": "10s",
    }
    client = boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="lake")
    yield options
    server.stop()
