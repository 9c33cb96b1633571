"""Sort the rows of a scan.

The sort columns are read first, the other columns only for the rows within the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.common.arguments import flag
from trilake.common.text import columns_help
from trilake.lance.file.errors import UnknownColumnError, WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import LanceSchema
from trilake.lance.scan import scan
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, ROW_METADATA, FragmentReader
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.scan.snapshot import Snapshot

#: If less than 1/``_FEW`` of the rows is returned, the other columns are taken row by row.
_FEW = 8


@dataclass(frozen=True)
class ColumnOrdering:
    """A column to sort by.

    Parameters
    ----------
    column_name: ``"struct.field"`` is a part of a column.
    ascending: whether the least value comes first; NaN is greater than all numbers.
    nulls_first: whether nulls come before all values, or after them.
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False

    def __str__(self) -> str:
        return (
            f"{self.column_name} {'ASC' if self.ascending else 'DESC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        )


Orderings = tuple[ColumnOrdering, ...]


def orderings_of(order_by: Any) -> Orderings:
    """Parse an order: names, orderings, or objects with the same attributes.  Raises ``WrongTypeError``."""
    if order_by is None:
        return ()
    if isinstance(order_by, str) or not isinstance(order_by, Iterable):
        raise WrongTypeError(f"order_by must be a list of names or of ColumnOrdering, got {order_by!r}")
    return tuple(_ordering(one) for one in order_by)


def _ordering(one: Any) -> ColumnOrdering:
    if isinstance(one, str):
        return ColumnOrdering(one)
    name = getattr(one, "column_name", None)
    if not isinstance(name, str):
        raise WrongTypeError(f"order_by must be a list of names or of ColumnOrdering, but contains {one!r}")
    return ColumnOrdering(name, flag("ascending", one.ascending), flag("nulls_first", one.nulls_first))


def ordered(
    snapshot: Snapshot, plan: ScanPlan, readers: Sequence[FragmentReader], orderings: Orderings, threads: int | None
) -> pa.Table:
    """Read the rows of a scan in the given order, with its limit and offset."""
    every = replace(plan, limit=None, offset=0)
    names = [o.column_name for o in orderings if o.column_name not in ROW_METADATA]
    row_metadata = tuple(
        dict.fromkeys((ROW_ADDRESS, *(o.column_name for o in orderings if o.column_name in ROW_METADATA)))
    )
    columns = _columns(snapshot, names)
    key_plan = replace(every, columns=columns, row_metadata=row_metadata)
    keys = pa.Table.from_batches(
        scan.scan(snapshot.indexed(key_plan), readers, threads=threads), schema=key_plan.schema
    )
    order = sorted_places(keys, orderings).slice(plan.offset, plan.limit)
    if len(order) * _FEW < len(keys):
        addresses = keys.column(ROW_ADDRESS).take(order).to_numpy()
        return snapshot.take_addresses(addresses, plan.columns, row_metadata=plan.row_metadata)
    rows = scan.scan(snapshot.indexed(every), readers, threads=threads)
    return scan.rows_at(pa.Table.from_batches(rows, schema=plan.schema), order)


def ordered_found(snapshot: Snapshot, rows: pa.Table, orderings: Orderings) -> pa.Table:
    """Sort the result of a search, which has row ids, by columns other than the distance."""
    names = [o.column_name for o in orderings if o.column_name not in rows.schema.names]
    keys = rows
    for name in names:
        values = snapshot.take_rows(rows.column(ROW_ID).to_numpy(), _columns(snapshot, [name]))
        keys = keys.append_column(name, _key(values, name))
    return rows.take(sorted_places(keys, orderings))


def _columns(snapshot: Snapshot, names: list[str]) -> LanceSchema:
    for name in names:
        if snapshot.view.schema.find(name) is None:
            raise UnknownColumnError(f"{name} not found in schema", help=columns_help(name, snapshot.schema.names))
    return snapshot.view.columns(list(dict.fromkeys(names))) if names else LanceSchema(())


def sorted_places(rows: pa.Table, orderings: Orderings) -> pa.Array:
    """The indices that sort the rows, in a stable order.  Raises ``WrongTypeError``."""
    columns: dict[str, pa.ChunkedArray] = {}
    order: list[tuple[str, str]] = []

    def then(values: pa.ChunkedArray, *, ascending: bool) -> None:
        order.append((str(len(columns)), "ascending" if ascending else "descending"))
        columns[order[-1][0]] = values

    for one in orderings:
        key = _key(rows, one.column_name)
        if key.null_count:
            then(pc.is_null(key), ascending=not one.nulls_first)
        if pt.is_floating(key.type):
            then(pc.fill_null(pc.is_nan(key), False), ascending=one.ascending)
        then(key, ascending=one.ascending)
    try:
        return pc.sort_indices(pa.table(columns), sort_keys=order)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as e:
        raise WrongTypeError(f"rows cannot be ordered by {', '.join(map(str, orderings))}: {e}") from e


def _key(rows: pa.Table, name: str) -> pa.ChunkedArray:
    first, *rest = [name] if name in rows.schema.names else name.split(".")
    column = rows.column(first)
    column = pc.struct_field(column, rest) if rest else column
    chunks = [storage_array(chunk) for chunk in column.chunks]
    column = pa.chunked_array(chunks, chunks[0].type if chunks else column.type)
    kind = column.type
    if pt.is_nested(kind):
        raise WrongTypeError(
            f"rows cannot be ordered by {name}, which is of type {kind}", help="name one of its fields"
        )
    if pt.is_dictionary(kind):
        return column.cast(kind.value_type)
    return column.cast(pa.float32()) if pt.is_float16(kind) else column
