"""Checks of the log's files: no gap, readable commits, a readable version."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import pairwise

from trilake.delta.log.segment import commit_key
from trilake.delta.verify.context import DeltaContext
from trilake.errors import CorruptLogError, TrilakeError
from trilake.table.findings import Finding, NotCheckedError, unreadable

#: The repair step that drops the newest versions with torn commit files.
DROP_TORN = "delta.drop-torn-commits"


def no_gap(table: DeltaContext) -> Generator[Finding, None, int]:
    """The versions in the log are contiguous."""
    versions = sorted(table.listing.commits)
    for before, after in pairwise(versions):
        if after == before + 1:
            continue
        missing = after - before - 1
        readable = min((v for v, _ in table.listing.checkpoints if v >= after - 1), default=None)
        what = f"version {before + 1} is" if missing == 1 else f"versions {before + 1} to {after - 1} are"
        yield Finding(
            "delta.log-gap",
            f"the {'commit' if missing == 1 else 'commits'} of {what} missing"
            + (
                ""
                if readable is None
                else f"; versions {readable} to {table.version} can be read from the checkpoint of version"
                f" {readable}, but versions {before + 1} to {readable - 1} cannot be read"
            ),
            "restore the missing commit files from a backup"
            + ("" if readable is None else "; the newest version can be read without them"),
            severity="error" if readable is None else "warning",
            file=commit_key(before + 1),
            version=before + 1,
        )
    return len(versions)


def torn_commits(table: DeltaContext) -> list[int]:
    """The newest versions with unreadable commits, if no other file holds them and the version before is intact."""
    _ = table.batch
    first = table.version + 1
    while isinstance(table.bad_commits.get(first - 1), CorruptLogError):
        first -= 1
    newer = [v for v, _ in table.everything.checkpoints if v >= first]
    if not 0 < first <= table.version or newer or table.version != max(table.everything.commits):
        return []

    def is_readable(version: int) -> bool:
        try:
            table.log.snapshot(version)
        except TrilakeError:
            return False
        return True

    torn = not is_readable(table.version) and is_readable(first - 1)
    return list(range(first, table.version + 1)) if torn else []


def commits_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every line of every commit is a JSON object with an action."""
    torn = torn_commits(table)
    for version, error in sorted(table.bad_commits.items()):
        finding = unreadable("delta.commit-unreadable", error, file=commit_key(version), version=version)
        if version in torn:
            finding = replace(finding, repair=DROP_TORN, help=_torn_help(torn))
        yield finding
    return len(table.listing.commits)


def version_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Readers can reconstruct the version from the log."""
    try:
        _ = table.snapshot
    except NotCheckedError:
        if table.snapshot_error is None:
            raise
    error = table.snapshot_error
    if error is not None:
        torn = torn_commits(table)
        finding = unreadable("delta.version-unreadable", error)
        if isinstance(error.context.get("version"), int) and error.context["version"] in table.bad_commits:
            message = (
                f"version {table.version} needs the commit of version {error.context['version']}, which is damaged"
            )
            finding = replace(finding, message=message, version=table.version)
        yield replace(finding, repair=DROP_TORN, help=_torn_help(torn)) if torn else finding
    return 1


def _torn_help(torn: Sequence[int]) -> str:
    return (
        f"restore the file from a backup; version {torn[0] - 1} can be read; or drop newer versions (trilake.repair"
        " with accept_loss)"
    )
