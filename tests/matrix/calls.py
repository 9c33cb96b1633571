"""Helpers for the calls of the matrix."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from trilake.errors import UnsupportedSparkError
from trilake.spark.session.compat import RELEASE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The kind of session.
MODE = os.environ.get("TRILAKE_MATRIX_MODE", "classic")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Lake:
    """A session with trilake's formats, and a folder."""

    spark: SparkSession
    folder: Path

    def path(self, name: str) -> str:
        """A path in the folder."""
        return str(self.folder / name)

    def rows(self, count: int = 100, start: int = 0) -> DataFrame:
        """Rows with a column of each common type."""
        return self.spark.range(start, start + count).selectExpr(
            "id",
            "id % 5 AS k",
            "CAST(id AS string) AS s",
            "CAST(id AS double) AS f",
            "timestamp_micros(id * 1000001) AS ts",
            "date_add(DATE'2024-01-01', CAST(id AS int)) AS d",
            "CAST(id AS decimal(12, 2)) AS dec",
            "id % 2 = 0 AS even",
            "array(id, id + 1) AS a",
            "named_struct('x', id, 'y', 'z') AS st",
            "map('m', id) AS m",
            "CAST(array() AS array<array<array<int>>>) AS e",
            "CAST(CAST(id AS string) AS binary) AS b",
        )

    def simple(self, count: int = 50, start: int = 0) -> DataFrame:
        """Rows with a number and a string, which every format supports."""
        return self.spark.range(start, start + count).selectExpr("id", "CAST(id AS string) AS s")

    def wait(self, query: Any) -> None:
        """Wait for a stream to end, and raise its error."""
        assert query.awaitTermination(240), "the stream does not end"
        assert query.exception() is None, str(query.exception())


def since(major: int, minor: int, *, connect: tuple[int, int] | None = None) -> Callable[[F], F]:
    """State the first release that supports a call, and over Spark Connect, if that differs.

    On older releases it must raise ``UnsupportedSparkError``.
    """
    needed = (major, minor) if MODE != "connect" or connect is None else connect

    def mark(test: F) -> F:
        if needed <= RELEASE:
            return test

        @functools.wraps(test)
        def rejected(*args: Any, **kwargs: Any) -> None:
            with pytest.raises(UnsupportedSparkError):
                test(*args, **kwargs)

        rejected._matrix_rejected = True  # type: ignore[attr-defined]
        return rejected  # type: ignore[return-value]

    return mark


#: For calls that no release supports over Spark Connect.
NEVER = (99, 0)


def counted(total: int) -> Callable[[F], F]:
    """Show in the table how many of the ``total`` cases of a test work, if some are rejected."""

    def mark(test: F) -> F:
        test._matrix_counted = total  # type: ignore[attr-defined]
        return test

    return mark
