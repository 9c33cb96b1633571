"""Add columns of other data by joining on a key."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import columns_help
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
    """Add the columns of ``data`` to the rows with the same key; other rows get nulls.

    ``left_on`` may be ``_rowid`` or ``_rowaddr``.  If several rows of ``data`` have the same key, the first one counts.
    Null keys match nothing.

    Raises ``InvalidArgumentError`` if a key column is missing, ``SchemaMismatchError`` if the key types differ or a
    null would be lost.
    """
    values, schema = join_values(snapshot, data, left_on, right_on)
    if is_id(snapshot, left_on):  # ids are only valid in this version
        return add_columns(snapshot, schema, (), lambda: values, nulls=nulls, repeatable=False, places=(left_on,))
    return add_columns(snapshot, schema, [left_on], lambda: values, nulls=nulls)


def is_id(snapshot: Snapshot, name: str) -> bool:
    """Whether a name is ``_rowid`` or ``_rowaddr``, and not a column."""
    return name in (ROW_ID, ROW_ADDRESS) and name not in snapshot.schema.names


def join_values(snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None) -> tuple[Values, pa.Schema]:
    """Return a function that looks up the rows of ``data`` by key, and its output schema."""
    places, rest = matching(snapshot, data, left_on, right_on)

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = rest.take(places(batch.column(0)))
        return pa.RecordBatch.from_arrays([one_array(c) for c in columns.columns], schema=columns.schema)

    return values, pa.schema([f.with_nullable(True) for f in rest.schema])


def matching(
    snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None
) -> tuple[Callable[[pa.Array], pa.Array], pa.Table]:
    """Return a function that maps keys to the first matching row of ``data`` or null, and ``data`` without its key.

    Raises ``InvalidArgumentError`` and ``SchemaMismatchError``, see :func:`merge`.
    """
    right_on = right_on or left_on
    left_schema = (
        snapshot.schema.append(pa.field(left_on, pa.uint64())) if is_id(snapshot, left_on) else snapshot.schema
    )
    for name, names in ((left_on, left_schema.names), (right_on, data.schema.names)):
        if name not in names:
            raise UnknownColumnError(f"join column {name!r} not found", help=columns_help(name, names))
    kind = left_schema.field(left_on).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    key_type = data.schema.field(right_on).type
    key_type = key_type.value_type if pa.types.is_dictionary(key_type) else key_type
    if not _of_one_kind(key_type, kind):
        raise RowsDoNotFitError(
            f"the join keys are of type {key_type}, but those of the dataset are of type {kind}",
            help="cast them, or pass another column as right_on",
            column=right_on,
        )
    try:
        keys = one_array(data.column(right_on).cast(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise RowsDoNotFitError(f"the join keys cannot be cast to {kind}: {e}", column=right_on) from e
    rest = data.drop_columns([right_on]).combine_chunks()
    if not rest.num_columns:
        raise InvalidArgumentError("the data to merge has no columns except the key")

    def places(values: pa.Array) -> pa.Array:
        return pc.index_in(values.cast(kind) if values.type != kind else values, value_set=keys, skip_nulls=True)

    return places, rest


#: Key types by kind; casts within a kind raise on loss.
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    (pa.types.is_date, pa.types.is_timestamp),
)


def _of_one_kind(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether keys are comparable: the string "01" is not the number 1, although it can be cast."""
    if left == right or pa.types.is_null(left) or left.id == right.id:
        return True
    return any(any(is_(left) for is_ in kind) and any(is_(right) for is_ in kind) for kind in _KINDS)
