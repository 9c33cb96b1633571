"""Shared fixtures: hypothesis profiles, one Spark session, and the path to the shared corpora."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import trilake
from tests import jvm
from tests.s3_server import S3Server, s3_server
from trilake.errors import TrilakeError
from trilake.spark.session.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
#: Tests on Spark that ``make test`` runs: reads, writes, commands and SQL of each format.  ``make long`` runs the rest.
QUICK_ON_SPARK = (
    "tests/spark/lance/test_source.py",
    "tests/spark/test_delta_spark_api.py",
    "tests/spark/trevni/test_source.py",
    "tests/sql/spark/session/test_session.py",
)
SOAK = os.environ.get("TRILAKE_SOAK", "") not in ("", "0")

os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm.options())
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1")

# A deadline would fail tests on a busy machine.  CI tries the same examples every time, so that a failed run can be
# repeated; developers' machines and soak runs try new examples.
_too_slow = [HealthCheck.too_slow]
_EXAMPLES = 40
settings.register_profile("trilake", deadline=None, suppress_health_check=_too_slow, max_examples=_EXAMPLES)
settings.register_profile(
    "trilake-ci",
    deadline=None,
    suppress_health_check=_too_slow,
    max_examples=_EXAMPLES,
    derandomize=True,
    database=None,
)
settings.register_profile("trilake-soak", deadline=None, suppress_health_check=_too_slow, max_examples=5_000)
settings.load_profile("trilake-soak" if SOAK else "trilake-ci" if os.environ.get("CI") else "trilake")


def examples(few: int) -> int:
    """Number of examples of a hypothesis test: ``few``, or many when soaking."""
    return 100 * few if SOAK else few


def pytest_report_header() -> str:
    """Report which Java runs Spark, or why there is none."""
    try:
        return f"spark: {find_java()}"
    except TrilakeError as e:
        return f"spark: {e}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect with garbage collection disabled, which would traverse the 14,000 tests repeatedly."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each file on one worker, and all Spark files of ``make test`` on the same one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # late: few runs have workers

    files = LoadFileScheduling(config, log)
    scope = files._split_scope
    files._split_scope = lambda nodeid: "spark" if scope(nodeid) in QUICK_ON_SPARK else scope(nodeid)
    return files


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark most tests on Spark as long; leave out the soak tests, and the time limit of the others when soaking."""
    if hasattr(
        config, "workerinput"
    ):  # Spark tests start early, so that the other workers do not wait for them at the end
        files = {path: path.relative_to(ROOT).as_posix() for path in {item.path for item in items}}
        items.sort(key=lambda item: "tests/lance" if files[item.path] in QUICK_ON_SPARK else files[item.path])
    for item in items:
        file = item.path.relative_to(ROOT).as_posix()
        if "spark" in getattr(item, "fixturenames", ()) and file not in QUICK_ON_SPARK:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("soak") and not SOAK:
            item.add_marker(pytest.mark.skip(reason="a soak test: make soak runs it"))
        if SOAK:
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the whole run; tests restore the settings they change."""
    from trilake.spark.session.local import local_session  # late: most runs of a few tests need no PySpark

    warehouse = tmp_path_factory.mktemp("spark-warehouse")
    conf: dict[str, Any] = {"spark.sql.warehouse.dir": warehouse.as_uri()}
    session = local_session("trilake tests", **conf)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """That session with trilake registered."""
    trilake.register(spark)
    return spark


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    """That session with SQL support for trilake tables."""
    from trilake.sql.spark.install import install, uninstall  # late, as above

    install(spark)
    yield spark
    uninstall(spark)


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Any]:
    """Set session options for a test, and restore them."""
    before: dict[str, str | None] = {}

    def set_(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield set_
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def shared_folder() -> Path | None:
    """The folder of corpora, specs and facts: ``TRILAKE_SHARED``, or ``../shared`` next to the repository.

    ``None`` if neither exists.
    """
    named = os.environ.get("TRILAKE_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared"
    return folder if (folder / "corpus").is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of :func:`shared_folder`; skips the test if it does not exist.

    The folder is read-only: copy a table before writing to it.
    """
    folder = shared_folder()
    if folder is not None:
        return folder
    if named := os.environ.get("TRILAKE_SHARED"):
        pytest.fail(f"TRILAKE_SHARED names {named}, which holds no folder 'corpus'")
    pytest.skip("the shared corpora are not here: put them beside the repository, or let TRILAKE_SHARED name them")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server in this process, on the loopback interface, with a bucket ``lake``."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_options(s3: S3Server) -> Mapping[str, str]:
    """Options for the bucket ``lake`` of that server."""
    return s3.options
