"""What the examples in docstrings run in: those of Spark's rooms in a session and a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestItem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOMS = ("trilake.spark", "trilake.sql.install")


@pytest.fixture(scope="session")
def spark_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Path]]:
    """A session that knows our formats, and the folder that it was started in, made when the first example asks."""
    from trilake.spark.front.register import register  # late: most examples need no PySpark
    from trilake.spark.session.local import local_session

    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # Java keeps to it, whatever Python does later
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # it lives for seconds
        conf: dict[str, Any] = {"spark.sql.warehouse.dir": (folder / "names").as_uri()}
        session = local_session("examples", **conf)
        register(session)
    yield session, folder
    session.stop()


@pytest.fixture(autouse=True)
def _examples(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = request.node
    if not isinstance(item, DoctestItem) or not item.dtest.name.startswith(_ROOMS):
        return
    if any("spark." in example.source for example in item.dtest.examples):
        session, folder = request.getfixturevalue("spark_of_examples")
        doctest_namespace["spark"] = session
        monkeypatch.chdir(folder)
