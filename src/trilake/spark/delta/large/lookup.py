"""Find the files of a large table for a filter: in this process or, if there are very many, in a job."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import SparkSession

from trilake.delta.log.checkpoint_parts import counted
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.scan.narrowed import narrowed_by_jobs, snapshot_for
from trilake.errors import TrilakeError
from trilake.expr import Filter
from trilake.spark.session.large_tables import SparkJobs, by_jobs

#: One process looks up a million files per second, with 8 bytes of memory per file, so a job pays off late.
_FEWER = 5
_log = logging.getLogger("trilake.spark")


def look_up(
    spark: SparkSession,
    log: DeltaLog,
    opened: Snapshot | PendingSnapshot,
    filter: Filter | None,
    whole: Callable[[PendingSnapshot], Snapshot],
) -> Snapshot:
    """The version with at least the files that may have a row for which ``filter`` is true.

    ``whole`` reads all files, if that is necessary.  If a job fails, for example because tasks cannot see the table,
    this process does the work.
    """
    if filter is None or isinstance(opened, Snapshot):
        return snapshot_for(log, opened, filter, whole)
    if not by_jobs(spark, log.store, counted(opened.segment) // _FEWER):
        return snapshot_for(log, opened, filter, whole)
    try:
        narrowed = narrowed_by_jobs(log, opened, filter, SparkJobs(spark, opened.uri))
    except TrilakeError as e:
        _log.info("a job cannot look up the files of %s: %s", opened.uri, e.message)
        return snapshot_for(log, opened, filter, whole)
    return whole(opened) if narrowed is None else narrowed
