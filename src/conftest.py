"""What the examples in docstrings run in: those that use Spark, in a session and a folder of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestItem

from tests import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _uses_spark(source: str) -> bool:
    """Whether an example uses the name ``spark`` and does not make it itself."""
    names = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name) and n.id == "spark"]
    return any(isinstance(n.ctx, ast.Load) for n in names)


@pytest.fixture(scope="session")
def spark_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Path]]:
    """A session that knows our formats, and the folder that it was started in, made when the first example asks."""
    from trilake.spark.session.local import local_session  # late: most examples need no PySpark

    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # Java keeps to it, whatever Python does later
        patch.setenv("SPARK_SUBMIT_OPTS", jvm.options())
        conf: dict[str, Any] = {"spark.sql.warehouse.dir": (folder / "names").as_uri()}
        session = local_session("examples", cores=1, **conf)
    yield session, folder
    session.stop()


@pytest.fixture(autouse=True)
def _examples(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = request.node
    if isinstance(item, DoctestItem) and any(_uses_spark(example.source) for example in item.dtest.examples):
        from trilake.spark.patches.register import register  # late: most examples need no PySpark

        session, folder = request.getfixturevalue("spark_of_examples")
        register(session)  # the example of ``unregister`` takes it back
        doctest_namespace["spark"] = session
        monkeypatch.chdir(folder)
