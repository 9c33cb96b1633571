"""Errors that are of this package and of Spark's classes: they answer what handlers of Spark's errors ask."""

from __future__ import annotations

import pickle

import pytest
from pyspark.errors import AnalysisException, PySparkException

from trilake.errors import ConcurrentAppendError, TableExistsError, TrilakeError
from trilake.spark.session.analysis_errors import analysis_error, job_error, parse_error, unsupported_error
from trilake.sql.session.problems import SqlSyntaxError

_TAKEN = TableExistsError("[TABLE_OR_VIEW_ALREADY_EXISTS] t already exists", help="choose another name")
_ERRORS = {
    "analysis": (analysis_error(_TAKEN), "TABLE_OR_VIEW_ALREADY_EXISTS"),
    "job": (job_error(TrilakeError("no")), "TRILAKE"),
    "parse": (parse_error(TrilakeError("no", condition="DELTA_NO")), "DELTA_NO"),
    "unsupported": (unsupported_error(TrilakeError("no")), "TRILAKE"),
    "syntax": (SqlSyntaxError("no", line=1, position=0), "PARSE_SYNTAX_ERROR"),
}


@pytest.mark.parametrize("which", _ERRORS)
def test_an_error_answers_what_handlers_of_sparks_errors_ask(which: str) -> None:
    """On PySpark 3.5 the condition, and on every release the parameters, were an AttributeError: Spark's own methods
    look for fields that errors of ours did not have."""
    error, condition = _ERRORS[which]
    assert isinstance(error, PySparkException)
    answers = [error.getErrorClass(), error.getCondition(), error.getMessageParameters(), error.getQueryContext()]
    assert answers == [condition, condition, {}, []]
    assert error.getSqlState() == {"syntax": "42601", "analysis": "42P07"}.get(which)


def test_a_conflict_answers_too() -> None:
    error = analysis_error(ConcurrentAppendError("another writer was first"))
    assert isinstance(error, PySparkException)
    assert isinstance(error, ConcurrentAppendError)
    assert not isinstance(error, AnalysisException)
    assert (error.getCondition(), error.getSqlState()) == ("DELTA_CONCURRENT_APPEND", "2D521")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_that_went_to_another_process_is_what_it_was() -> None:
    error = pickle.loads(pickle.dumps(analysis_error(_TAKEN)))
    assert isinstance(error, TableExistsError)
    assert isinstance(error, AnalysisException)
    assert (error.getErrorClass(), str(error)) == ("TABLE_OR_VIEW_ALREADY_EXISTS", str(_TAKEN))
