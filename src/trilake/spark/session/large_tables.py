"""Large tables: their file lists do not fit in this process, so Spark jobs process them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trilake.delta.engine import Jobs
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import SparkRunner, task_rows
from trilake.storage.base import Store

#: Tables with more files than this are processed by jobs.
LARGE_FILES = "spark.trilake.delta.largeTableFiles"
DEFAULT_LARGE_FILES = 2_000_000


def by_jobs(spark: SparkSession, store: Store, files: int) -> bool:
    """Whether a table has more files than the session allows in this process.

    Raises ``InvalidArgumentError`` if the setting is not a number.
    """
    value = str(spark.conf.get(LARGE_FILES, str(DEFAULT_LARGE_FILES)))
    if not value.isdecimal():
        raise InvalidArgumentError(f"{LARGE_FILES} must be a number of files, got {value!r}", setting=LARGE_FILES)
    # Executors cannot see this process's memory.
    return files > int(value) and not store.uri.startswith("memory:")


def session_jobs(store: Store, files: int) -> Jobs | None:
    """The active session's jobs for a table with this many files; ``None`` if it needs none."""
    spark = SparkSession.getActiveSession()
    return SparkJobs(spark, store.uri) if spark is not None and by_jobs(spark, store, files) else None


@dataclass(frozen=True)
class SparkJobs:
    """Spark's executors as the :class:`trilake.delta.engine.Jobs` of the table at ``uri``."""

    spark: SparkSession
    uri: str

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        """The results of the function for each task, in any order."""
        runner = SparkRunner(self.spark, width=1, least=1)
        results: list[Any] = self._done(lambda: list(runner(function, tasks)))
        return results

    def repeated(self, strings: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        """A string that occurs more than once among the strings of all tasks; ``None`` if there is none."""

        def find() -> str | None:
            rows = task_rows(self.spark, _Strings(strings), tasks, "value string")
            hashed = rows.groupBy(F.xxhash64("value").alias("hash")).count().where("count > 1")
            if not hashed.limit(1).count():
                return None
            repeats = rows.groupBy("value").count().where("count > 1").limit(1).collect()
            return str(repeats[0].value) if repeats else None

        repeated: str | None = self._done(find) if tasks else None
        return repeated

    def _done(self, job: Callable[[], Any]) -> Any:
        try:
            return job()
        except TrilakeError:
            raise
        except Exception as e:  # noqa: BLE001 - whatever Spark raises for a failed job
            what = "a job over the files of a large table failed"
            raise job_error_of(e, what, again="try again", file=self.uri) from None


@dataclass(frozen=True)
class _Strings:
    strings: Callable[[Any], Iterator[pa.ChunkedArray]]

    def __call__(self, task: Any) -> Iterator[pa.RecordBatch]:
        for column in self.strings(task):
            for chunk in column.chunks:
                yield pa.RecordBatch.from_arrays([chunk.cast(pa.string())], ["value"])
