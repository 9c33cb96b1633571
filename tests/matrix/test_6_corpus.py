"""SQL scripts of the shared corpus, after ``trilake.install``; none if the corpus does not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import trilake
from tests.conftest import shared_folder
from tests.matrix.calls import MODE, Lake, counted
from tests.sql.test_corpus import Case, corpus_cases, corpus_runner
from trilake.spark.session.compat import RELEASE

_SHARED = shared_folder()
_CASES: dict[str, Case] = {} if _SHARED is None else {c["name"]: c for c in corpus_cases(_SHARED)}
#: Cases that a release or kind of session does not support: the error message and the reason.
_LACKING: dict[str, tuple[str, str]] = {}
#: Cases in which Spark itself rejects a statement without an error condition.
_NAMELESS: set[str] = set()
if RELEASE < (4, 0):
    _LACKING["variables-in-merge-and-execute"] = ("at or near 'DECLARE'", "session variables came with Spark 4.0")
    if MODE != "connect":  # its server is a newer release
        _NAMELESS |= {"truncate-table-path", "err-analysis-exists-already"}  # TRUNCATE and CREATE VIEW of another kind
if MODE == "connect":
    _VIEWS = ("UNSUPPORTED_SPARK", "the catalog of a Connect server takes no text for a permanent view")
    _LACKING |= dict.fromkeys(("show-tables-schema", "drop-table-external"), _VIEWS)

#: The error of each case that creates a name, if a client cannot register trilake's formats with its server.
_NO_NAMES = "cannot create names of trilake tables" if MODE == "connect" and RELEASE < (4, 0) else None


@pytest.fixture
def sql(lake: Lake) -> Iterator[Lake]:
    """The session with trilake's SQL, in the time zone of the corpus."""
    spark, key = lake.spark, "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    spark.conf.set(key, "UTC")
    trilake.install(spark)
    yield lake
    trilake.uninstall(spark)
    spark.conf.set(key, str(before))


@counted(len(_CASES))
@pytest.mark.parametrize("name", _CASES)
def test_corpus(sql: Lake, name: str, record_property: Callable[[str, object], None]) -> None:
    """SQL scripts with the results and errors of delta-spark"""
    assert _SHARED is not None
    run = corpus_runner(_SHARED).Case(_CASES[name], SimpleNamespace(spark=sql.spark))
    try:
        verdict, step, why = run.run()
    finally:
        run.clean()
    if _NO_NAMES is not None and verdict == "error" and _NO_NAMES in why:
        record_property("rejected", "a client of PySpark 3.5 registers no formats")
        return
    if name in _LACKING:
        rejection, reason = _LACKING[name]
        assert verdict == "error", f"{name} is not rejected, though {reason}"
        assert rejection in why, f"step {step + 1}: {why}"
        record_property("rejected", reason)
        return
    assert verdict == "pass", f"step {step + 1}: {why}"
    assert run.conditions[1] - run.conditions[0] == (name in _NAMELESS), f"{run.conditions} conditions are the same"
