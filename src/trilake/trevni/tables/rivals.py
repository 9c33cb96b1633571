"""Exclusive writes: those that replace a folder, and those that must be the first into it.

An exclusive job announces itself by its plan, and looks for others before anything moves::

    put plan --> another such job, whose id is less? --yes--> take the plan back, wait for that job, begin again
                   |no
                   v
    wait for those whose ids are greater --> look at the folder: final plan --> move files, end

Of two jobs, the later look sees the other's plan, or its files.  A job waits for greater ids only, and withdraws for
smaller ones, so two jobs never wait for each other.  After :data:`PATIENCE_S` a job that does not end is aborted, and
cannot commit any more.  The greatest id is waited for first, so that the patience with a job starts when it waits for
none.  Appends neither wait nor are waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from trilake.common.runtime import Runtime
from trilake.errors import StorageError
from trilake.storage import Store
from trilake.trevni.tables import jobs
from trilake.trevni.tables.jobs import Plan

#: Seconds to wait for a job that does not end.
PATIENCE_S = 60.0
#: The first and the longest pause between checks of a job.
_PAUSES_S = 0.02, 1.0


def begin_alone(store: Store, job: str, plan: Plan, removes: Callable[[], tuple[str, ...]], runtime: Runtime) -> Plan:
    """Write the plan of an exclusive job; no other one can commit until it ends.

    ``removes`` returns the files to remove; its errors end the job before anything has moved.

    Raises ``WriteFailedError`` where another job aborted this one, ``StorageError``, and the errors of ``removes``.
    """
    plan = replace(plan, alone=True)
    while True:
        jobs.begin(store, job, plan)
        try:
            others = sorted(jobs.alone_at_work(store, job), reverse=True)
            if not others or others[-1] > job:
                for other in others:
                    _await(store, job, other, runtime)
                # Remove what was committed since the first look, too.
                final = replace(plan, removes=removes())
                if final != plan:
                    jobs.put_plan(store, job, final)
                return final
        except BaseException:
            with suppress(StorageError):
                jobs.take_back(store, job)
            raise
        jobs.take_back(store, job)
        for other in others:
            _await(store, job, other, runtime)


def _await(store: Store, job: str, other: str, runtime: Runtime) -> None:
    """Wait until another job ends; abort it where that takes too long."""
    waited, pause = 0.0, _PAUSES_S[0]
    while jobs.is_at_work(store, other):
        # A job that was aborted must not abort others.
        jobs.check_running(store, job)
        if waited >= PATIENCE_S:
            jobs.record_outcome(store, other, "aborted")
            return
        runtime.sleep(pause)
        waited, pause = waited + pause, min(2 * pause, _PAUSES_S[1])
