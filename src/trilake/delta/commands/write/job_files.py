"""Files that a write job left in a table's folder."""

from __future__ import annotations

from trilake.delta.log.log import DeltaLog


def files_of_job(log: DeltaLog, job_id: str) -> list[str]:
    """List the data files of a write job in the table's folder, whether a commit names them or not."""
    return [o.key for o in log.store.list() if job_id in o.key]


def left_behind(log: DeltaLog, job_id: str) -> str:
    """The files that a failed job left, as part of a sentence."""
    files = files_of_job(log, job_id)
    if not files:
        return "no files remain"
    names = ", ".join(files[:3]) + (", ..." if len(files) > 3 else "")
    return f"{len(files)} files remain, invisible to readers: {names}"
