"""trilake: open lakehouse tables for PySpark in pure Python.

>>> import pyarrow as pa, trilake
>>> trilake.write(pa.table({"n": [1, 2]}), "memory://doc", mode="overwrite").version
0
>>> trilake.open("memory://doc").count()
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trilake.common.package_functions import keep_functions
from trilake.common.version import __version__

if TYPE_CHECKING:
    from trilake import checksum as checksum
    from trilake import delta as delta
    from trilake import errors as errors
    from trilake import lance as lance
    from trilake import storage as storage
    from trilake import trevni as trevni
    from trilake.api import alter, convert_to_delta, create, explain, read, sync_iceberg, write
    from trilake.api import open as open
    from trilake.delta.commands.alter.alter_table import Alter
    from trilake.delta.commands.maintenance.clone import CloneResult
    from trilake.delta.commands.maintenance.convert import ConvertResult
    from trilake.delta.commands.maintenance.restore import RestoreResult
    from trilake.delta.commands.maintenance.vacuum import VacuumResult
    from trilake.delta.commands.merge.builder import MergeBuilder
    from trilake.delta.commands.merge.commit import MergeResult
    from trilake.delta.commands.optimize.optimize import OptimizeResult
    from trilake.delta.commit.symlink_manifest import ManifestResult
    from trilake.delta.table import ArrowDeltaTable
    from trilake.delta.transaction import Transaction
    from trilake.errors import TrilakeError
    from trilake.spark.delta.optimize import DeltaOptimizeBuilder
    from trilake.spark.delta.table import DeltaTable
    from trilake.spark.delta.table_builder import DeltaTableBuilder, IdentityGenerator
    from trilake.spark.patches.foreach_batch import foreach_batch
    from trilake.spark.patches.register import register, unregister
    from trilake.spark.patches.streams import stream_lag, write_stream
    from trilake.sql.duckdb.run import sql as sql
    from trilake.sql.spark.install import install, session, uninstall
    from trilake.table.comparison.result import TableDiff
    from trilake.table.dropping import DropResult
    from trilake.table.explanation import Explanation
    from trilake.table.findings import Finding, Findings, Repairs
    from trilake.table.report_page import Advice, Report
    from trilake.table.results import ChangeResult, WriteResult
    from trilake.table.table import Table
    from trilake.tools.convert import Conversion, convert
    from trilake.tools.diff import diff
    from trilake.tools.drop import drop
    from trilake.tools.repair import repair
    from trilake.tools.report import report
    from trilake.tools.verify import verify

#: Public name -> the module that defines it.  Names are loaded when first used: importing trilake costs next to nothing
#: and loads nothing of Spark before a name that needs it.
_HOME = {
    name: f"trilake.{module}"
    for module, names in {
        "api": "alter convert_to_delta create explain open read sync_iceberg write",
        "tools.convert": "convert Conversion",
        "common.display": "load_ipython_extension unload_ipython_extension",
        "tools.diff": "diff",
        "tools.drop": "drop",
        "tools.repair": "repair",
        "tools.verify": "verify",
        "tools.report": "report",
        "sql.spark.install": "session install uninstall",
        "spark.patches.foreach_batch": "foreach_batch",
        "spark.patches.register": "register unregister",
        "spark.patches.streams": "stream_lag write_stream",
        "delta.commands.alter.alter_table": "Alter",
        "delta.table": "ArrowDeltaTable",
        "delta.commands.maintenance.clone": "CloneResult",
        "delta.commands.maintenance.convert": "ConvertResult",
        "delta.commit.symlink_manifest": "ManifestResult",
        "delta.commands.merge.builder": "MergeBuilder",
        "delta.commands.merge.commit": "MergeResult",
        "delta.commands.maintenance.restore": "RestoreResult",
        "delta.commands.maintenance.vacuum": "VacuumResult",
        "table.dropping": "DropResult",
        "spark.delta.optimize": "DeltaOptimizeBuilder",
        "spark.delta.table": "DeltaTable",
        "spark.delta.table_builder": "DeltaTableBuilder IdentityGenerator",
        "table.explanation": "Explanation",
        "table.findings": "Finding Findings Repairs",
        "table.report_page": "Report Advice",
        "delta.commands.optimize.optimize": "OptimizeResult",
        "table.table": "Table",
        "table.comparison.result": "TableDiff",
        "delta.transaction": "Transaction",
        "errors": "TrilakeError",
        "table.results": "ChangeResult WriteResult",
    }.items()
    for name in names.split()
}

# Without `open`: a star import must not hide the built-in function.
__all__ = [
    "Advice", "Alter", "ArrowDeltaTable", "ChangeResult", "CloneResult", "Conversion", "ConvertResult",
    "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "DropResult", "Explanation", "Finding", "Findings",
    "IdentityGenerator", "ManifestResult", "MergeBuilder", "MergeResult", "OptimizeResult", "Repairs", "Report",
    "RestoreResult", "Table", "TableDiff", "Transaction", "TrilakeError", "VacuumResult", "WriteResult", "__version__",
    "alter", "convert", "convert_to_delta", "create", "diff", "drop", "explain", "foreach_batch", "install", "read",
    "register", "repair", "report", "session", "sql", "stream_lag", "sync_iceberg", "uninstall", "unregister", "verify",
    "write", "write_stream",
]  # fmt: skip


#: Subpackages that are attributes of the package without being imported.
_ROOMS = ("checksum", "delta", "errors", "lance", "storage", "trevni")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"trilake.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'trilake' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ImportError as e:
        if type(e).__module__ == "trilake.errors":  # it says what to install; the traceback does not help
            raise e.with_traceback(None) from None
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOME, *_ROOMS})


keep_functions(__name__, sql="trilake.sql.duckdb.run")
