"""Files that a write job left in a table's folder."""

from __future__ import annotations

from trilake.delta.log.log import DeltaLog


def files_of_job(log: DeltaLog, job_id: str) -> list[str]:
    """Data files in the table's folder that a write job made, whether a commit names them or not."""
    return [o.key for o in log.store.list() if job_id in o.key]


def left_behind(log: DeltaLog, job_id: str) -> str:
    """What a job that failed left in the table's folder, as part of a sentence."""
    left = files_of_job(log, job_id)
    if not left:
        return "no files remain"
    shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
    return f"{len(left)} files remain, invisible to readers: {shown}"
