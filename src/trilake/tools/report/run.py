"""``report``: one HTML page about a table, from metadata only, without network access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike

from trilake.api.opening import open_at
from trilake.common.extras import need
from trilake.common.text import plain
from trilake.common.timestamps import TimestampLike
from trilake.errors import masked
from trilake.table.registry import format_named
from trilake.table.report_facts import Verified
from trilake.table.report_page import Report
from trilake.table.table import Table
from trilake.tools.verify import verify as verify_table

#: Most findings on the page, and most files of a table that is verified by default: above, it would dominate the time.
_FINDINGS, _VERIFIED = 100, 20_000


def report(
    uri: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    *,
    verify: bool | None = None,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Create a report of a table: versions, files, partitions, columns, schema, streams, findings, and advice.

    Parameters
    ----------
    uri, format, version, timestamp, storage_options: see :func:`trilake.open`.
    path: a local file for the page.
    verify: whether the metadata is verified, see :func:`trilake.verify`; by default for tables of at most 20,000
        files.

    Reads only metadata and a few footers, changes nothing, and runs no job.  Raises ``MissingDependencyError`` without
    ``pip install "trilake[report]"``, ``InvalidArgumentError`` if ``path`` cannot be written, and the errors of
    :func:`trilake.open`.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-report", mode="overwrite")
    >>> page = trilake.report("memory://doc-report")
    >>> page.html.startswith("<!doctype html>"), len(page.advice)
    (True, 0)
    """
    return report_of(open_at(uri, format, version, timestamp, storage_options), path, verify=verify)


def report_of(table: Table, path: str | PathLike[str] | None = None, *, verify: bool | None = None) -> Report:
    """The report of an open table, at the version that it shows; see :func:`report`."""
    for package in ("jinja2", "altair", "vl_convert"):
        need(package, "Reports")
    from trilake.tools.report.page import page_of  # needs these

    facts = replace(format_named(table.format).report_facts(table), uri=masked(table.uri))
    verifies = facts.files.num_rows <= _VERIFIED if verify is None else verify
    html, advice = page_of(replace(facts, findings=_verified(table) if verifies else None))
    page = Report(masked(table.uri), html, tuple(advice))
    if path is not None:
        page.save(path)
    return page


def _verified(table: Table) -> Verified | None:
    verification = verify_table(table, depth="log")
    if not verification.checks:
        return None
    rows = [
        (f.severity, f.code, plain(f.message, 400), plain(f.file or f.column or "", 200), plain(f.help or "", 400))
        for f in verification.findings[:_FINDINGS]
    ]
    skipped = [(c.code, plain(c.reason or "", 200)) for c in verification.skipped]
    return Verified(
        tuple(rows), len(verification.checks), tuple(skipped), max(0, len(verification.findings) - _FINDINGS)
    )
