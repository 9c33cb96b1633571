"""``report``: one page of HTML about a table, made from its metadata; no row and no network is read for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from os import PathLike

from trilake.errors import InvalidArgumentError
from trilake.extras import need
from trilake.formats import find_format
from trilake.report_page import Report
from trilake.reporting.facts import Facts
from trilake.storage import open_store
from trilake.table import Table, as_version
from trilake.timestamps import TimestampLike


def report(
    uri: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    *,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Make a report of a table: versions, files, partitions, columns, schema, streams, findings, and what to do.

    Parameters
    ----------
    uri, format, version, timestamp, storage_options: as of :func:`trilake.open`.
    path: a local file that gets the page.

    Nothing of the table is changed, and no job is run: what is read are metadata and a few footers.  Raises
    ``MissingDependencyError`` without ``pip install "trilake[report]"``, ``InvalidArgumentError`` where ``path`` cannot
    be written, and otherwise as :func:`trilake.open`.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-report", mode="overwrite")
    >>> page = trilake.report("memory://doc-report")
    >>> page.html.startswith("<!doctype html>"), len(page.advice)
    (True, 0)
    """
    store = open_store(uri, dict(storage_options or {}))
    return report_of(find_format(store, format).open(store, as_version(version), timestamp), path)


def report_of(table: Table, path: str | PathLike[str] | None = None) -> Report:
    """The report of an open table, at the version that it shows; see :func:`report`."""
    # Loaded here: charts take altair, and a page jinja2, which nothing else needs.
    from trilake.reporting.charts import Charts

    need("jinja2", "Reports")
    from trilake.reporting.page import page_of

    with Charts() as charts:
        facts = facts_of(table)
        text, advice = page_of(facts, charts)
    made = Report(table.uri, text, tuple(advice))
    if path is not None:
        made.save(path)
    return made


def facts_of(table: Table) -> Facts:
    """The facts of a table of any format.  Raises ``InvalidArgumentError`` for a table of no known one."""
    now_ms = int(time.time() * 1000)
    if table.format == "delta":
        from trilake.delta.table import ArrowDeltaTable
        from trilake.reporting.delta_facts import delta_facts

        assert isinstance(table, ArrowDeltaTable)
        return delta_facts(table)
    if table.format == "lance":
        from trilake.lance.table import LanceTable
        from trilake.reporting.lance_facts import lance_facts

        assert isinstance(table, LanceTable)
        return lance_facts(table, now_ms)
    if table.format == "trevni":
        from trilake.reporting.trevni_facts import trevni_facts
        from trilake.trevni.tables.table import TrevniTable

        assert isinstance(table, TrevniTable)
        return trevni_facts(table, now_ms)
    raise InvalidArgumentError(f"there is no report of tables of the format {table.format!r}", file=table.uri)
