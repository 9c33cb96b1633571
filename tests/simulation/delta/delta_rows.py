"""Rows of the simulation's Delta table, as model rows and as Arrow tables."""

from __future__ import annotations

import pyarrow as pa

from tests.simulation.delta.commit_rules import EXTRA
from tests.simulation.model import Rows
from tests.simulation.world import Violation

FIRST_ROWS: Rows = {1: (0, "v0"), 2: (1, "v0"), 3: (2, "v0")}
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("p", pa.string()), ("v", pa.string())])


def arrow(rows: Rows) -> pa.Table:
    """Convert model rows to a table."""
    columns = {
        "id": list(rows),
        "k": [k for k, _ in rows.values()],
        "p": [str(k % 2) for k, _ in rows.values()],
        "v": [v for _, v in rows.values()],
    }
    return pa.table(columns, schema=SCHEMA)


def model(table: pa.Table) -> Rows:
    """Convert a table to model rows; raise if a row occurs twice."""
    columns = [table[n].to_pylist() for n in ("id", "k", "v")]
    found = {i: (k, v) for i, k, v in zip(*columns, strict=True)}
    if len(found) < table.num_rows:
        raise Violation("a row was read twice")
    for name in table.column_names:
        # A row written while the column was dropped has no value in it.
        wrong = [i for i, x in zip(columns[0], table[name].to_pylist(), strict=True) if x not in (None, i)]
        if name.startswith(EXTRA) and wrong:
            raise Violation(f"rows {wrong} have a wrong value in {name}")
    return found
