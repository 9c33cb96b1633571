"""Model rows of a Lance dataset, and side columns derived from their keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tests.simulation.model import KEYS, Rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("k", pa.int64(), False), pa.field("v", pa.string())])
#: Number added to the key in a side column, by the first letter of its name.
SIDE = {"c": 0, "e": 10}
_SIDE_NAME = re.compile(r"[ce]\d+\Z")


def side_columns(names: Iterable[str]) -> list[str]:
    """Return the names of side columns."""
    return [n for n in names if _SIDE_NAME.match(n)]


def arrow(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Convert model rows to a table with the dataset's side columns."""
    columns = {"id": list(rows), "k": [k for k, _ in rows.values()], "v": [v for _, v in rows.values()]}
    table = pa.table(columns, schema=SCHEMA)
    for name in side_columns(schema.names):
        values = pc.add(table["k"], SIDE[name[0]]).cast(schema.field(name).type)
        table = table.append_column(schema.field(name), values)
    return table


def wrong_side(table: pa.Table, *, may_lack: bool) -> str | None:
    """Return what is wrong with the side columns, or ``None``.

    With ``may_lack``, values may be null; and an upsert that lacks a concurrently added column changes the keys of
    small ids (see :func:`~tests.simulation.model.upserted`) without changing its values.
    """
    keys = pa.array(range(KEYS))
    for name in side_columns(table.schema.names):
        side = table[name].cast(pa.int64())
        expected = pc.add(table["k"], SIDE[name[0]])
        if may_lack:
            kept = pc.and_(pc.less_equal(table["id"], KEYS), pc.is_in(side, pc.add(keys, SIDE[name[0]])))
            expected = pc.if_else(pc.or_(pc.is_null(side), kept), side, expected)
        if side.to_pylist() != expected.to_pylist():
            return f"{name} is {table[name].to_pylist()}, the keys are {table['k'].to_pylist()}"
    return None
