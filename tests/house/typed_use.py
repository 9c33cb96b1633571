"""Types of tables: ``make types`` checks this file; it is never run."""

from __future__ import annotations

from typing import assert_type

import trilake
from trilake.delta.table import ArrowDeltaTable
from trilake.lance.table import LanceTable
from trilake.trevni.tables.table import TrevniTable


def use_tables() -> None:
    """Calls with their inferred types."""
    table = trilake.open("memory://x")
    assert_type(table, ArrowDeltaTable)
    table.update({"n": "1"})
    table.merge([], "a = b").when_matched_delete().execute()
    table.vacuum(dry_run=True)
    table.to_pandas().head()
    lance = trilake.open("x", format="lance")
    assert_type(lance, LanceTable)
    lance.history()
    assert_type(trilake.open("x", format="trevni"), TrevniTable)
    assert_type(trilake.errors.ConflictError("x"), trilake.errors.ConflictError)
