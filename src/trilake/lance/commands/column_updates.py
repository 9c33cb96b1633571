"""Update columns of a fragment in place by writing new column files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError
from trilake.lance.commands.columns import is_id, matching
from trilake.lance.commands.fragment_writer import NullPolicy, Target, fitted, write_columns
from trilake.lance.file.errors import UnknownColumnError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import Field
from trilake.lance.file.view import stored_array
from trilake.lance.scan.fragment_reader import ROW_METADATA, FragmentReader, one_array
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions.effects import without_fields
from trilake.lance.versions.manifest import Fragment
from trilake.storage.base import WriteGroup


@dataclass(frozen=True)
class ColumnUpdate:
    """The fragment with its new data files, the ids of the changed fields, and the offsets of the changed rows."""

    fragment: Fragment
    field_ids: list[int]
    offsets: BitMap


def update_columns(
    snapshot: Snapshot,
    reader: FragmentReader,
    data: pa.Table,
    left_on: str,
    right_on: str | None = None,
    *,
    nulls: NullPolicy = "error",
    group: WriteGroup | None = None,
) -> ColumnUpdate:
    """Rewrite columns of a fragment with the values of ``data`` for the rows with the same key.

    All columns of ``data`` except ``right_on`` are updated in a new file.  The legacy format cannot use part of a data
    file, so there the new file also contains the other columns of the replaced files.

    Parameters are those of :func:`trilake.lance.commands.columns.merge`; the caller finishes the ``group`` of the new
    file.  Raises ``UnknownColumnError`` for a column
    that the dataset does not have, and ``SchemaMismatchError`` for values or keys that do not fit.
    """
    indices_of, new = matching(snapshot, data, left_on, right_on)
    values = _conformed(snapshot, new)
    changed = snapshot.view.schema.project(list(values))
    target = _target(snapshot, reader, frozenset(snapshot.view.stored(changed).field_ids), nulls)
    by_id = is_id(snapshot, left_on)
    names = target.view.schema.names
    view = snapshot.rows_view
    columns_to_read = view.columns(names if by_id or left_on in names else [*names, left_on])
    offsets = BitMap()

    def batches() -> Iterator[pa.RecordBatch]:
        position = 0
        for stored in reader.read_batches(view.stored(columns_to_read)):
            batch = view.show(stored, columns_to_read)
            start, position = position, position + batch.num_rows
            keys = reader.row_metadata(left_on, np.arange(start, position)) if by_id else batch.column(left_on)
            at = indices_of(pa.array(keys) if by_id else keys)
            live = reader.live_mask(start, position)
            if live is not None:
                at = pc.if_else(pa.array(live), at, pa.scalar(None, at.type))
            matches = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False)) + start
            offsets.update(matches.astype(np.uint32))
            unchanged = pa.array(np.arange(batch.num_rows, dtype=np.int64))
            indices = pc.coalesce(pc.add(at.cast(pa.int64()), batch.num_rows), unchanged)
            columns = [batch.column(name) for name in names]
            for i, new in ((i, values[name]) for i, name in enumerate(names) if name in values):
                old = _stored(changed.field(names[i]), columns[i])
                columns[i] = pa.concat_arrays([old.cast(new.type), new]).take(indices)
            yield target.stored(pa.RecordBatch.from_arrays(columns, names))

    written = write_columns(group or reader.store, batches(), target, snapshot.runtime, reader.physical_rows)
    remaining = without_fields(reader.fragment.files, {f.id for f in target.view.whole.walk()})
    fragment = replace(reader.fragment, files=(*remaining, *written), physical_rows=reader.physical_rows)
    return ColumnUpdate(fragment, sorted(changed.field_ids), offsets)


def _conformed(snapshot: Snapshot, new: pa.Table) -> dict[str, pa.Array]:
    fields = {f.name: f for f in snapshot.view.schema.storage_schema}
    computed = [name for name in new.schema.names if name in ROW_METADATA]
    if computed:
        raise InvalidArgumentError(f"the metadata column {computed[0]!r} cannot be updated", help="leave it out")
    unknown = [name for name in new.schema.names if name not in fields]
    if unknown:
        raise UnknownColumnError(
            f"column {unknown[0]!r} does not exist in the dataset", help=columns_help(unknown[0], list(fields))
        )
    values = {}
    for name, column in zip(new.schema.names, new.columns, strict=True):
        array = _stored(snapshot.view.schema.field(name), one_array(column))
        values[name] = fitted(array, fields[name], "the new values do not fit the column")
    return values


def _stored(field: Field, array: pa.Array) -> pa.Array:
    return storage_array(stored_array(field, array))


def _target(snapshot: Snapshot, reader: FragmentReader, ids: frozenset[int], nulls: NullPolicy) -> Target:
    """Return the fields to write; in the legacy format including all other fields of the replaced files."""
    schema, version = snapshot.manifest.schema, snapshot.manifest.storage_version
    if version.is_legacy:
        ids = ids.union(*(f.fields for f in reader.fragment.files if not ids.isdisjoint(f.fields)))
    rewritten = schema.project_ids(ids)
    return Target(rewritten.with_dictionaries(schema.dictionaries), version, nulls=nulls)
