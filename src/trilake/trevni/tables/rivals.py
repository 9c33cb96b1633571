"""Writes of which one at a time counts: those that replace a folder, and those that must be the first into it.

A job of them announces itself by its plan, which says so, and looks around before anything moves::

    put plan --> another such job, whose id is less? --yes--> take the plan back, wait for that job, begin again
                   |no
                   v
    wait for those whose ids are greater --> look at the folder: final plan --> move files, end

Of two jobs the one that looks later sees the other's plan, or its files.  Who has looked before the other came is
waited for, and who has not gives way to the lesser id: so they never wait for each other.  A job that has died holds
no one up for longer than :data:`PATIENCE_S`: it is given up then, and cannot be committed any more.  A job waits for
greater ids alone, so the greatest is waited for first: the patience with each begins when it has no one to wait for.
Rows that are added are held up by no one, and hold up no one.
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

#: Seconds that a job which does not end is waited for.
PATIENCE_S = 60.0
#: The first and the longest pause between two looks at a job.
_PAUSES_S = 0.02, 1.0


def begin_alone(store: Store, job: str, plan: Plan, removes: Callable[[], tuple[str, ...]], runtime: Runtime) -> Plan:
    """Put the plan of a job while no other one that counts alone can be committed; none may be until this one ends.

    ``removes`` looks at the folder, and says which files go; what it raises ends the job before anything has moved.

    Raises ``WriteFailedError`` where another job gave this one up, ``StorageError`` and what ``removes`` raises.
    """
    plan = replace(plan, alone=True)
    while True:
        jobs.begin(store, job, plan)
        try:
            others = sorted(jobs.alone_at_work(store, job), reverse=True)
            if not others or others[-1] > job:
                for other in others:
                    _await(store, job, other, runtime)
                # What was committed since the first look goes, too.
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
    """Wait until another job has an end, and give it one where that takes too long."""
    waited, pause = 0.0, _PAUSES_S[0]
    while jobs.is_at_work(store, other):
        # Who was given up in the meantime must give up no one.
        jobs.check_running(store, job)
        if waited >= PATIENCE_S:
            jobs.record_outcome(store, other, "aborted")
            return
        runtime.sleep(pause)
        waited, pause = waited + pause, min(2 * pause, _PAUSES_S[1])
