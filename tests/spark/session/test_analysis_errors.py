"""Errors that are both trilake errors and Spark's exceptions, with the interface of Spark's errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException

from trilake.errors import (
    ChangeFeedError,
    ConcurrentAppendError,
    IllegalArgumentError,
    InvalidArgumentError,
    TableExistsError,
    TrilakeError,
)
from trilake.spark.session.analysis_errors import (
    SparkErrorMethods,
    analysis_error,
    job_error,
    parse_error,
    unsupported_error,
)
from trilake.sql.spark.session.problems import SqlSyntaxError

_TAKEN = TableExistsError("[TABLE_OR_VIEW_ALREADY_EXISTS] t already exists", help="choose another name")
_ERRORS = {
    "analysis": (analysis_error(_TAKEN), "TABLE_OR_VIEW_ALREADY_EXISTS"),
    "job": (job_error(TrilakeError("no")), "TRILAKE"),
    "parse": (parse_error(TrilakeError("no", condition="DELTA_NO")), "DELTA_NO"),
    "unsupported": (unsupported_error(TrilakeError("no")), "TRILAKE"),
    "syntax": (SqlSyntaxError("no", line=1, position=0), "PARSE_SYNTAX_ERROR"),
}


@pytest.mark.parametrize("which", _ERRORS)
def test_error_has_the_interface_of_spark_errors(which: str) -> None:
    """The condition (on PySpark 3.5) and the parameters raised an AttributeError: trilake errors lacked Spark's
    fields."""
    error, condition = _ERRORS[which]
    assert isinstance(error, PySparkException)
    answers = [error.getErrorClass(), error.getCondition(), error.getMessageParameters(), error.getQueryContext()]
    assert answers == [condition, condition, {}, []]
    assert error.getSqlState() == {"syntax": "42601", "analysis": "42P07"}.get(which)


@pytest.mark.parametrize(
    "error",
    [
        IllegalArgumentError("a path is required", help="write one"),
        InvalidArgumentError("both", condition="DELTA_ONEOF_IN_TIMETRAVEL"),
        InvalidArgumentError("[DELTA_ILLEGAL_OPTION] no"),
    ],
)
@pytest.mark.parametrize("make", [analysis_error, job_error])
def test_illegal_argument_is_an_illegal_argument_exception(
    error: TrilakeError, make: Callable[[TrilakeError], TrilakeError]
) -> None:
    """``except IllegalArgumentException`` did not catch them."""
    both = make(error)
    for known in (both, pickle.loads(pickle.dumps(both))):
        for kind in (IllegalArgumentException, AnalysisException, ValueError, type(error), SparkErrorMethods):
            assert isinstance(known, kind)
        assert str(known) == str(error)
        assert known.code == "INVALID_ARGUMENT"
        assert type(known).__name__ == type(error).__name__
        assert known.getCondition() == both.getCondition()  # type: ignore[attr-defined]
    assert not isinstance(make(InvalidArgumentError("other")), IllegalArgumentException)


def test_invalid_change_range_is_not_an_analysis_exception() -> None:
    both = analysis_error(ChangeFeedError("end before start", condition="DELTA_INVALID_CDC_RANGE"))
    assert isinstance(both, IllegalArgumentException)
    assert not isinstance(both, AnalysisException)


def test_conflict_has_the_interface_of_spark_errors() -> None:
    error = analysis_error(ConcurrentAppendError("another writer was first"))
    assert isinstance(error, PySparkException)
    assert isinstance(error, ConcurrentAppendError)
    assert not isinstance(error, AnalysisException)
    assert (error.getCondition(), error.getSqlState()) == ("DELTA_CONCURRENT_APPEND", "2D521")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_error_is_unchanged_after_pickling() -> None:
    error = pickle.loads(pickle.dumps(analysis_error(_TAKEN)))
    assert isinstance(error, TableExistsError)
    assert isinstance(error, AnalysisException)
    assert (error.getErrorClass(), str(error)) == ("TABLE_OR_VIEW_ALREADY_EXISTS", str(_TAKEN))
