"""Reports: what a table is, how it does and what to do about it, on one page of HTML that needs nothing else."""

from __future__ import annotations

from trilake.tools.report.run import report, report_of

__all__ = ["report", "report_of"]
