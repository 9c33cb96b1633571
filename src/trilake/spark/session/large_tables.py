"""Which tables a session works on by jobs, because this process would not hold their files, and how it runs those."""

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

#: Setting of a session: a table of more files is worked on by jobs.
LARGE_FILES = "spark.trilake.delta.largeTableFiles"
DEFAULT_LARGE_FILES = 2_000_000


def by_jobs(spark: SparkSession, store: Store, files: int) -> bool:
    """Whether a table has more files than the session wants this process to hold.

    Raises ``InvalidArgumentError`` where the setting is not a number.
    """
    text = str(spark.conf.get(LARGE_FILES, str(DEFAULT_LARGE_FILES)))
    if not text.isdecimal():
        raise InvalidArgumentError(
            f"{LARGE_FILES} is {text!r}", help="it must be a number of files", setting=LARGE_FILES
        )
    # What lies in this process's memory is nowhere else.
    return files > int(text) and not store.uri.startswith("memory:")


def session_jobs(store: Store, files: int) -> Jobs | None:
    """The active session's jobs for a table of so many files; ``None`` where it has none for it."""
    spark = SparkSession.getActiveSession()
    return SparkJobs(spark, store.uri) if spark is not None and by_jobs(spark, store, files) else None


@dataclass(frozen=True)
class SparkJobs:
    """Spark's executors as :class:`trilake.delta.engine.Jobs` on the table at ``uri``."""

    spark: SparkSession
    uri: str

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        """What the function makes of each task, in any order."""
        runner = SparkRunner(self.spark, width=1, least=1)
        done: list[Any] = self._done(lambda: list(runner(function, tasks)))
        return done

    def repeated(self, texts: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        """One of the strings that are there more than once among those of all tasks."""

        def find() -> str | None:
            found = task_rows(self.spark, _Texts(texts), tasks, "text string")
            hashed = found.groupBy(F.xxhash64("text").alias("hash")).count().where("count > 1")
            if not hashed.limit(1).count():
                return None
            rows = found.groupBy("text").count().where("count > 1").limit(1).collect()
            return str(rows[0].text) if rows else None

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
class _Texts:
    texts: Callable[[Any], Iterator[pa.ChunkedArray]]

    def __call__(self, task: Any) -> Iterator[pa.RecordBatch]:
        for column in self.texts(task):
            for chunk in column.chunks:
                yield pa.RecordBatch.from_arrays([chunk.cast(pa.string())], ["text"])
