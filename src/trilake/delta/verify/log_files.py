"""Checks of the log's own files: no gap, every commit readable, the version can be made up."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

from trilake.delta.log.segment import commit_key
from trilake.delta.verify.context import DeltaContext
from trilake.table.findings import Finding, NotCheckedError, unreadable


def no_gap(table: DeltaContext) -> Generator[Finding, None, int]:
    """The versions that the log holds follow each other."""
    versions = sorted(table.listing.commits)
    for before, after in pairwise(versions):
        if after != before + 1:
            missing = after - before - 1
            covered = any(v >= after - 1 for v, _ in table.listing.checkpoints)
            yield Finding(
                "delta.log-gap",
                f"{missing:,} commits are missing between version {before} and {after}",
                "restore the missing commit files from a copy"
                + ("; newer versions are read from a checkpoint behind the gap" if covered else ""),
                severity="warning" if covered else "error",
                file=commit_key(before + 1),
                version=before + 1,
            )
    return len(versions)


def commits_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every commit is lines of JSON objects that are actions."""
    _ = table.batch
    for version, error in sorted(table.bad_commits.items()):
        yield unreadable("delta.commit-unreadable", error, file=commit_key(version), version=version)
    return len(table.listing.commits)


def version_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Readers can make up the version from the log."""
    try:
        _ = table.snapshot
    except NotCheckedError:
        if table.snapshot_error is None:
            raise
    if table.snapshot_error is not None:
        yield unreadable("delta.version-unreadable", table.snapshot_error)
    return 1
