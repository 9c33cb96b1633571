r"""Jobs: make all files of a write visible, and hide all files that it replaces, in one step.

The format has no log, so a job has two small records in the staging folder while it moves its files::

    <job>.plan   the keys that the job adds and those that it removes
    <job>.end    "committed" or "aborted"; written by ``put_if_absent``, so a job has one end

    put plan -> move files -> put end: committed -> remove replaced files -> remove plan -> remove end
                   \-------> put end: aborted   -> remove moved files    -> remove plan -> remove end

Readers (:func:`visible`) ignore the files that a plan adds until its end is "committed", and the files that it removes
after that.  If a reply is lost, the request may still take effect later.  So the records of an aborted job stay for a
week if another driver aborted it, or if the outcome of a move is unknown.  After any failure:

1. before the end is written, readers see the previous files and none of the job's files;
2. after that, they see all of its files and none that it replaces;
3. files that no plan names are always visible.

:func:`finish_stale_jobs` completes jobs with an end, and aborts jobs without activity for a week.  A job that is
aborted before it has a plan has only an end, which stops its running tasks.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, cast

import orjson

from trilake.errors import (
    CorruptFileError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnknownOutcomeError,
    WriteFailedError,
)
from trilake.storage import ObjectMeta, Store
from trilake.storage.ownership import old_temporaries, own_keys
from trilake.storage.staging import remove_folder, sync_names

STAGING = "_staged"
#: Time without activity after which a job is aborted, in ms.
STALE_MS = 7 * 24 * 3600 * 1000

Outcome = Literal["committed", "aborted"]
RECORD = re.compile(rf"{STAGING}/([^/]+)\.(plan|end)")
#: Keys of a plan that may be deleted after the job, depending on its outcome; never those of hidden files.
_VISIBLE = r"(?:(?![._])[^/]+/|_[^/]*=[^/]*/)*"
_ADDED, _REMOVED = rf"{_VISIBLE}part-[^/]+", rf"{_VISIBLE}(?![._])[^/]+"
#: Maximum number of listings of a folder that keeps changing.
_TRIES = 20


@dataclass(frozen=True)
class Plan:
    """The keys of files that a job adds and removes; ``alone``: see ``row_groups.begin_alone``."""

    adds: tuple[str, ...]
    removes: tuple[str, ...] = ()
    alone: bool = False

    def serialised(self) -> bytes:
        fields = {"adds": self.adds, "removes": self.removes}
        return orjson.dumps({**fields, "alone": True} if self.alone else fields)


def plan_key(job: str) -> str:
    """Return the key of a job's plan."""
    return f"{STAGING}/{job}.plan"


def end_key(job: str) -> str:
    """Return the key of a job's end."""
    return f"{STAGING}/{job}.end"


def job_of(folder: str) -> str:
    """Return the job of a folder of staged files, whose name ends with task and attempt: ``0fd1-00003-17``."""
    return folder.partition("-")[0]


def begin(store: Store, job: str, plan: Plan) -> None:
    """Write the plan of a job before any file moves."""
    store.put_if_absent(plan_key(job), plan.serialised())


def alone_at_work(store: Store, job: str) -> list[str]:
    """Return the running exclusive jobs other than ``job``."""
    keys = [meta.key for meta in store.list(STAGING)]
    running = set(_jobs(keys, "plan")) - set(_jobs(keys, "end")) - {job}
    return [other for other in sorted(running) if (plan := plan_of(store, other)) is not None and plan.alone]


def is_at_work(store: Store, job: str) -> bool:
    """Whether a job has a plan but no end."""
    return store.find(plan_key(job)) is not None and store.find(end_key(job)) is None


def record_outcome(store: Store, job: str, outcome: Outcome) -> Outcome:
    """Write the end of a job unless it has one, and return its end.  Raises ``UnknownOutcomeError``."""
    for _ in range(3):
        try:
            store.put_if_absent(end_key(job), outcome.encode())
            return outcome
        except (ObjectExistsError, UnknownOutcomeError) as e:
            lost = e
        try:
            return _outcome(store, job)
        except ObjectNotFoundError:
            continue  # not yet written, or removed with a complete job
        except StorageError:
            break
    raise UnknownOutcomeError(
        f"the write may or may not be committed: {lost.message}",
        help="open the folder again: it has either all or none of the write's rows",
        file=store.uri,
    ) from lost


def check_running(store: Store, job: str) -> None:
    """Raise ``WriteFailedError`` if a job has an end, so that its tasks stop staging files."""
    if store.find(end_key(job)) is not None:
        raise WriteFailedError(
            "the job of this task was aborted", help="its rows are not written; repeat the write", file=store.uri
        )


def _outcome(store: Store, job: str) -> Outcome:
    end = store.read(end_key(job)).to_pybytes()
    if end in (b"committed", b"aborted"):
        return cast(Outcome, end.decode())
    raise CorruptFileError(
        f"expected 'committed' or 'aborted' as the end of a job, got {end!r:.50}", file=f"{store.uri}/{end_key(job)}"
    )


def _plan(store: Store, job: str) -> Plan:
    raw = store.read(plan_key(job)).to_pybytes()
    try:
        parsed = orjson.loads(raw)
        plan = Plan(tuple(parsed["adds"]), tuple(parsed["removes"]), parsed.get("alone") is True)
        if all(isinstance(key, str) for key in plan.adds + plan.removes):
            return plan
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        pass
    raise CorruptFileError(
        "the plan of a job cannot be read, so it is unknown which files are committed",
        help="if no write is running, remove the plan and the files of that job",
        file=f"{store.uri}/{plan_key(job)}",
    )


def plan_of(store: Store, job: str) -> Plan | None:
    """Return the plan of a job, if it has one.  Raises ``CorruptFileError`` for a damaged plan."""
    try:
        return _plan(store, job)
    except ObjectNotFoundError:
        return None


def visible(store: Store, prefix: str = "") -> list[ObjectMeta]:
    """List the objects below a folder of the table that no job hides, in key order.

    A job may start and end during a listing, so list until two listings agree about records and data files.  Raises
    ``StorageError`` if they never do, and ``CorruptFileError`` for a damaged plan.
    """
    before: list[ObjectMeta] | None = None
    for _ in range(_TRIES):
        objects = list(store.list(prefix))
        records = [m for m in (store.list(STAGING) if prefix else objects) if RECORD.fullmatch(m.key)]
        of_jobs = records + [m for m in objects if m.key.rpartition("/")[2].startswith("part-")]
        if of_jobs == before:
            with suppress(ObjectNotFoundError):  # a job ended just now: list again
                hidden = _hidden(store, [m.key for m in records])
                return [m for m in objects if m.key not in hidden]
        before = of_jobs
    raise StorageError(
        f"{_TRIES} listings of the folder differ: files change faster than they can be listed",
        help="retry when fewer jobs write, or use a table with a log",
        file=store.uri,
    )


def _hidden(store: Store, records: Sequence[str]) -> set[str]:
    ended = {key for key in records if key.endswith(".end")}
    hidden: set[str] = set()
    for job in _jobs(records, "plan"):
        plan = _plan(store, job)
        committed = end_key(job) in ended and _outcome(store, job) == "committed"
        hidden.update(plan.removes if committed else plan.adds)
    return hidden


def _jobs(records: Iterable[str], kind: str) -> list[str]:
    matches = (RECORD.fullmatch(key) for key in records)
    return [m[1] for m in matches if m is not None and m[2] == kind]


def complete(store: Store, job: str, plan: Plan, outcome: Outcome, *, keep_records: bool = False) -> None:
    """Remove the files that a job with an end does not need, then its records.

    The order matters: the plan hides these files, and without the end it would hide others.  With ``keep_records`` both
    records stay, as a file of an aborted job may appear later, and its driver may still be running.
    """
    planned = plan.removes if outcome == "committed" else plan.adds
    superfluous = own_keys(store, planned, _REMOVED if outcome == "committed" else _ADDED, what="the end of a job")
    store.delete(superfluous)
    # Without this, a power failure could restore files that no plan hides any more.
    sync_names(store, superfluous)
    if not keep_records:
        store.delete([plan_key(job)])
        store.delete([end_key(job)])


def finish_stale_jobs(store: Store, now_ms: int, *, stale_ms: int = STALE_MS) -> None:
    """Complete jobs with an end, and abort those without activity for ``stale_ms``; ``now_ms`` is the store's time."""
    newest: dict[str, int] = {}
    staged: dict[str, list[str]] = {}
    records: list[str] = []
    for meta in [*store.list(STAGING), *store.unfinished(STAGING)]:
        match = RECORD.fullmatch(meta.key)
        job = match[1] if match is not None else job_of(meta.key.split("/")[1])
        newest[job] = max(newest.get(job, 0), meta.modified_ms)
        if match is None:
            staged.setdefault(job, []).append(meta.key)
        else:
            records.append(meta.key)
    ends = set(_jobs(records, "end"))
    plans = set(_jobs(records, "plan"))
    for job, at in newest.items():
        stale = now_ms - at > stale_ms
        with suppress(ObjectNotFoundError):  # removed by another process, or by the job
            if job in plans and (job in ends or stale):
                # If a listed end is gone, the job is complete and must not get another end.
                outcome = _outcome(store, job) if job in ends else record_outcome(store, job, "aborted")
                # Read the plan after the end: a job removes its plan first, so if both exist, they belong together.
                plan = _plan(store, job)
                # If the driver is still moving these files, it must fail.
                _remove(store, staged.get(job, []))
                # The end of a job aborted here stops its driver, and is removed with the plan a week later.
                complete(store, job, plan, outcome, keep_records=outcome == "aborted" and not (job in ends and stale))
            elif job in ends or stale:
                _remove(store, staged.get(job, []))
                if stale:
                    store.delete([end_key(job)])
    if store.local_path("x") is not None:  # object stores do not show unfinished files
        store.delete([m.key for m in old_temporaries(store, "", now_ms - stale_ms)])
    for folder, at in _folders(store):
        if now_ms - at > stale_ms:
            with suppress(OSError):  # the folder is not empty
                os.rmdir(folder)
    remove_staging_folder(store)


def _folders(store: Store) -> list[tuple[str, int]]:
    """Return the folders of tasks with their modification times; object stores have none."""
    path = store.local_path(STAGING)
    if path is None or not os.path.isdir(path) or os.path.islink(path):
        return []
    with os.scandir(path) as scan:
        return [(e.path, e.stat().st_mtime_ns // 1_000_000) for e in scan if e.is_dir(follow_symlinks=False)]


def _remove(store: Store, staged: Sequence[str]) -> None:
    store.delete([key for key in staged if not store.passes_link(key)])
    for folder in {"/".join(key.split("/")[:2]) for key in staged}:
        remove_folder(store, folder)


def remove_staged(store: Store, job: str) -> None:
    """Remove all staged files of a job, finished or not."""
    keys = {m.key for metas in (store.list(STAGING), store.unfinished(STAGING)) for m in metas}
    _remove(store, [k for k in sorted(keys) if not RECORD.fullmatch(k) and job_of(k.split("/")[1]) == job])
    for folder, _ in _folders(store):
        if job_of(os.path.basename(folder)) == job:
            shutil.rmtree(folder, ignore_errors=True)
    remove_staging_folder(store)


def remove_staging_folder(store: Store) -> None:
    """Remove the staging folder if it is empty; object stores have none."""
    remove_folder(store, STAGING, only_empty=True)
