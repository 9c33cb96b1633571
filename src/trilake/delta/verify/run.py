"""The promises of a Delta table, a row each, and the function that looks at all of them."""

from __future__ import annotations

from trilake.delta.engine import Engine
from trilake.delta.verify import data_files, log_files
from trilake.delta.verify.context import DeltaContext
from trilake.findings import Check, Depth, Findings, run_checks
from trilake.storage.base import Store

CHECKS: tuple[Check[DeltaContext], ...] = (
    Check("delta.log-gap", "the versions in the log are contiguous", "log", log_files.no_gap),
    Check("delta.commit-unreadable", "every commit is lines of JSON actions", "log", log_files.commits_readable),
    Check("delta.version-unreadable", "readers can make up the version", "log", log_files.version_readable),
    Check("delta.file-missing", "every data file of the version is there", "files", data_files.present),
)


def verify_delta(store: Store, engine: Engine, version: int | None, depth: Depth, sample: int | None) -> Findings:
    """All checks of a Delta table up to a depth; see :func:`trilake.verify`.

    Raises ``TableNotFoundError`` or ``VersionNotFoundError``.
    """
    context = DeltaContext(store, engine, version, depth, sample)
    at = context.version
    findings, runs = run_checks(CHECKS, context, depth)
    return Findings(store.uri, "delta", at, depth, findings, runs)
