"""Joins: columns of other data, added to the rows that have the same key."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.columns import Values, add_columns
from trilake.lance.commands.fragment_writer import NullPolicy
from trilake.lance.file.errors import RowsDoNotFitError, UnknownColumnError
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID
from trilake.lance.scan.scan import one_array
from trilake.lance.scan.snapshot import Snapshot


def merge(
    snapshot: Snapshot,
    data: pa.Table,
    left_on: str,
    right_on: str | None = None,
    *,
    nulls: NullPolicy = "error",
) -> Snapshot:
    """Add the columns of ``data`` to the rows that have the same key; the others get nulls.

    ``left_on`` may be ``_rowid`` or ``_rowaddr``.  Of several rows of ``data`` with one key, the first counts.  A null
    key equals none.

    Raises ``InvalidArgumentError`` where a key column is missing, ``SchemaMismatchError`` where the keys differ in type
    or a null would be lost.
    """
    values, schema = join_values(snapshot, data, left_on, right_on)
    if is_id(snapshot, left_on):  # ids of this version, which another one gives to other rows
        return add_columns(snapshot, schema, (), lambda: values, nulls=nulls, repeatable=False, places=(left_on,))
    return add_columns(snapshot, schema, [left_on], lambda: values, nulls=nulls)


def is_id(snapshot: Snapshot, name: str) -> bool:
    """Whether a name is that of row ids or addresses, and of no column."""
    return name in (ROW_ID, ROW_ADDRESS) and name not in snapshot.schema.names


def join_values(snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None) -> tuple[Values, pa.Schema]:
    """What finds the row of ``data`` for each key in ``left_on``, and the schema of what it finds."""
    places, rest = matching(snapshot, data, left_on, right_on)

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = rest.take(places(batch.column(0)))
        return pa.RecordBatch.from_arrays([one_array(c) for c in columns.columns], schema=columns.schema)

    return values, pa.schema([f.with_nullable(True) for f in rest.schema])


def matching(
    snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None
) -> tuple[Callable[[pa.Array], pa.Array], pa.Table]:
    """What finds for each of some keys the first row of ``data`` that has it, or null; and ``data`` without its keys.

    Raises as :func:`merge` does.
    """
    right_on = right_on or left_on
    known = snapshot.schema.append(pa.field(left_on, pa.uint64())) if is_id(snapshot, left_on) else snapshot.schema
    for name, names in ((left_on, known.names), (right_on, data.schema.names)):
        if name not in names:
            raise UnknownColumnError(f"there is no column {name!r} to join on", help=f"there are {', '.join(names)}")
    kind = known.field(left_on).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    given = data.schema.field(right_on).type
    given = given.value_type if pa.types.is_dictionary(given) else given
    if not _of_one_kind(given, kind):
        raise RowsDoNotFitError(
            f"the keys are of type {given} and those of the dataset of type {kind}",
            help="cast them, or name another column in right_on",
            column=right_on,
        )
    try:
        keys = one_array(data.column(right_on).cast(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise RowsDoNotFitError(f"the keys are not of type {kind}: {e}", column=right_on) from e
    rest = data.drop_columns([right_on]).combine_chunks()
    if not rest.num_columns:
        raise InvalidArgumentError("the data to merge has no column besides its key")

    def places(own: pa.Array) -> pa.Array:
        return pc.index_in(own.cast(kind) if own.type != kind else own, value_set=keys, skip_nulls=True)

    return places, rest


#: Kinds of keys, within which a cast loses nothing without an error.
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    (pa.types.is_date, pa.types.is_timestamp),
)


def _of_one_kind(given: pa.DataType, own: pa.DataType) -> bool:
    """Whether keys can be compared: the text "01" is not the number 1, though a cast makes it that."""
    if given == own or pa.types.is_null(given) or given.id == own.id:
        return True
    return any(any(is_(given) for is_ in kind) and any(is_(own) for is_ in kind) for kind in _KINDS)
