"""Reports: description, health and advice for a table, on one self-contained HTML page."""

from __future__ import annotations

from trilake.tools.report.run import report, report_of

__all__ = ["report", "report_of"]
