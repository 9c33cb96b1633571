"""The files of a large table that a filter needs: found by this process, or by a job where there are very many."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import SparkSession

from trilake.delta.log.checkpoint_content import counted
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.scan.narrowed import snapshot_for
from trilake.delta.scan.narrowed_by_jobs import narrowed_by_jobs
from trilake.errors import TrilakeError
from trilake.expr import Filter
from trilake.spark.session.large_tables import SparkJobs, by_jobs

#: A process looks files up at a second a million, with 8 bytes for each in memory, so a job pays later than others do.
_FEWER = 5
_log = logging.getLogger("trilake.spark")


def looked_up(
    spark: SparkSession,
    log: DeltaLog,
    opened: Snapshot | PendingSnapshot,
    filter: Filter | None,
    whole: Callable[[PendingSnapshot], Snapshot],
) -> Snapshot:
    """The version with those files at least that may hold a row for which ``filter`` is true.

    ``whole`` reads all files, where all must decide.  A job that fails, as one does whose tasks do not see the table,
    is no matter: this process can do its work.  Raises as :meth:`~trilake.delta.log.log.DeltaLog.load` does.
    """
    if filter is None or isinstance(opened, Snapshot):
        return snapshot_for(log, opened, filter, whole)
    if not by_jobs(spark, log.store, counted(opened.segment) // _FEWER):
        return snapshot_for(log, opened, filter, whole)
    try:
        found = narrowed_by_jobs(log, opened, filter, SparkJobs(spark, opened.uri))
    except TrilakeError as e:
        _log.info("files of %s are not looked up by a job: %s", opened.uri, e.message)
        return snapshot_for(log, opened, filter, whole)
    return whole(opened) if found is None else found
