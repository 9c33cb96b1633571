"""Add, join, drop and alter columns without rewriting the others.

A new column is one more data file in every fragment, with the same row groups as its other files.  Values are computed
for live rows only; those of deleted rows are placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import flag
from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError
from trilake.expr import Expression, evaluate_all
from trilake.lance.commands import input_rows
from trilake.lance.commands.fragment_writer import NullPolicy, Target, in_parts, write_columns
from trilake.lance.commands.replan import USUAL, Retries, replanned_with_files
from trilake.lance.file import null_masks
from trilake.lance.file.errors import ColumnExistsError, RowsDoNotFitError, UnknownColumnError, WrongTypeError
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.storage_version import NESTED_COLUMNS, StorageVersion
from trilake.lance.file.types import LISTS
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, FragmentReader, one_array, one_batch
from trilake.lance.scan.joined_reader import joined, together
from trilake.lance.scan.parse_sql import PylanceSql, expression_of
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.effects import with_files_of
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.storage.base import Store, WriteGroup

#: Matches expressions of numbers without a cast.
_NUMBER = re.compile(r"[-+*()\d.\s]+")

#: Computes new columns from the live rows of a row group.
Values = Callable[[pa.RecordBatch], pa.RecordBatch]


def next_field_id(manifest: Manifest) -> int:
    """Return the next unused field id; ids of dropped fields count if a file still has them."""
    used = [id for f in manifest.fragments for file in f.files for id in file.fields]
    return max([manifest.schema.max_field_id, *used]) + 1


def widen(
    reader: FragmentReader,
    snapshot: Snapshot,
    target: Target,
    read: LanceSchema,
    values: Values,
    store: Store | WriteGroup,
    *,
    row_metadata: Sequence[str] = (),
) -> Iterator[Fragment]:
    """Add a data file in ``store`` to each fragment of a reader, with the columns that ``values`` computes from the
    columns ``read`` and ``row_metadata``.
    """
    stored = snapshot.view.stored(read)
    position = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal position
        for batch in reader.read_batches(stored):
            start, position = position, position + batch.num_rows
            mask = reader.live_mask(start, position)
            live = int(mask.sum()) if mask is not None else batch.num_rows
            if not live:
                yield target.blank(batch.num_rows)
                continue
            rows = snapshot.view.show(batch, read)
            if row_metadata:
                at = np.arange(start, position)
                behind = [pa.array(reader.row_metadata(name, at)) for name in row_metadata]
                rows = pa.RecordBatch.from_arrays([*rows.columns, *behind], [*rows.schema.names, *row_metadata])
            new = _new_values(values, rows if mask is None else rows.filter(pa.array(mask)))
            if mask is not None:
                at = np.maximum(np.cumsum(mask) - 1, 0)
                new = new.take(pa.array(at))
            yield target.stored(new)

    sizes = [one.physical_rows for one in reader.readers]
    for one, rows, part in zip(reader.readers, sizes, in_parts(batches(), sizes), strict=True):
        (entry,) = write_columns(store, part, target, snapshot.runtime, rows)
        yield replace(one.fragment, files=(*one.fragment.files, entry), physical_rows=rows)


def _new_values(values: Values, rows: pa.RecordBatch) -> pa.RecordBatch:
    new = values(rows)
    if not isinstance(new, pa.RecordBatch):
        raise InvalidArgumentError(f"the new columns must be a RecordBatch, got {type(new).__name__}")
    if new.num_rows != rows.num_rows:
        raise RowsDoNotFitError(
            f"expected {rows.num_rows} new values, got {new.num_rows}", help="return one value for each row"
        )
    return new


def with_columns(values: Values, schema: pa.Schema) -> Values:
    """Check that ``values`` always returns the same columns."""

    def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        new = values(batch)
        if isinstance(new, pa.RecordBatch) and sorted(new.schema.names) != sorted(schema.names):
            raise RowsDoNotFitError(
                "Output schema of function does not match the expected schema: "
                f"expected the columns {', '.join(schema.names)}, got {', '.join(new.schema.names)}"
            )
        return new

    return checked


def check_new(schema: LanceSchema, names: Iterable[str]) -> None:
    """Raise ``ColumnExistsError`` if a new column exists already."""
    both = set(schema.names) & set(names)
    if both:
        raise ColumnExistsError(
            f"column {min(both)!r} already exists", help="rename the new column, or drop the old one", column=min(both)
        )


def new_columns(snapshot: Snapshot, schema: pa.Schema, nulls: NullPolicy) -> Target:
    """Return the target of columns to add, which may be fields of existing structs.  Raises ``ColumnExistsError``."""
    version, current = snapshot.manifest.storage_version, snapshot.manifest.schema
    target = Target.new(schema, version, nulls=nulls, first_id=next_field_id(snapshot.manifest))
    _, own = _merged(snapshot, target.view.whole)
    if own.field_ids == target.view.whole.field_ids:
        return target
    if any(f.logical_type in LISTS and current.by_id(f.id) for f in own.walk()):
        raise InvalidArgumentError("fields within lists can only be added without values", help="pass a pa.field")
    return Target(own, version, nulls=nulls, extend=True)


def _merged(snapshot: Snapshot, added: LanceSchema) -> tuple[LanceSchema, LanceSchema]:
    """Return the schema with added columns, and the added columns with their final ids.

    From version 2.2, columns may be fields of existing structs.  Raises ``ColumnExistsError``.
    """
    whole = snapshot.manifest.schema
    if snapshot.manifest.storage_version < NESTED_COLUMNS:
        check_new(whole, added.names)
    return whole.merged(added)


def add_columns(
    snapshot: Snapshot,
    schema: pa.Schema,
    read: Sequence[str] | None,
    values: Values,
    *,
    nulls: NullPolicy = "error",
    repeatable: bool = True,
    by_fragment: bool = False,
    row_metadata: Sequence[str] = (),
    check: Callable[[], object] = lambda: None,
) -> Snapshot:
    """Add computed columns.

    ``values`` gets the columns ``read`` (``None`` for all) and ``row_metadata`` of all rows in order; if
    ``repeatable``, again for each attempt to commit; if ``by_fragment``, those of one fragment in a call.  ``check`` is
    called after the last row, and raises if values remain.
    """

    def make(current: Snapshot, written: list[Fragment]) -> op.Operation:
        target = new_columns(current, schema, nulls)
        columns = current.view.columns(read)
        fragments = []
        with current.store.write_group() as group:
            groups = ([r] for r in current.readers) if by_fragment else together(current.readers)
            for reader in joined(groups, [current.view.stored(columns)]):
                for fragment in widen(reader, current, target, columns, values, group, row_metadata=row_metadata):
                    written.append(replace(fragment, files=fragment.files[-1:]))
                    fragments.append(fragment)
            check()
        return op.Merge(tuple(fragments), _merged(current, target.schema)[0])

    return replanned_with_files(snapshot, make, USUAL if repeatable else Retries(0))


def add_expressions(snapshot: Snapshot, expressions: Mapping[str, str], *, nulls: NullPolicy = "error") -> Snapshot:
    """Add columns computed by SQL expressions."""
    values, schema, read = of_expressions(snapshot.schema, expressions)
    no_values = all(f.nullable and not pa.types.is_null(f.type) for f in schema) and not read
    if no_values and not snapshot.manifest.storage_version.is_legacy:
        return add_null_columns(snapshot, schema)
    return add_columns(snapshot, schema, read, values, nulls=nulls)


def of_expressions(input_schema: pa.Schema, expressions: Mapping[str, str]) -> tuple[Values, pa.Schema, list[str]]:
    """Return the function that computes SQL expressions, its output schema, and its input columns.

    As in pylance, non-null constants and copies of non-nullable columns become non-nullable columns, and numbers
    without a cast are int64 or double.
    """
    if not expressions:
        raise InvalidArgumentError("there are no columns to add")
    bound = {name: expression_of(PylanceSql(sql), input_schema) for name, sql in expressions.items()}
    schema = pa.schema([_field(name, e, input_schema) for name, e in bound.items()])
    read = sorted({c for e in bound.values() for c in e.columns})

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = evaluate_all(list(bound.values()), batch)
        arrays = [one_array(v).cast(f.type) for v, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return values, schema, read


def _field(name: str, expression: Expression, schema: pa.Schema) -> pa.Field:
    kind, value, column = expression.type, expression.constant, expression.column
    if column is not None:
        return pa.field(name, kind, len(column) > 1 or schema.field(column[0]).nullable)
    if value is None:
        return pa.field(name, kind)
    if value.is_valid and _NUMBER.fullmatch(expression.source):
        kind = pa.float64() if pa.types.is_decimal(kind) else pa.int64() if kind == pa.int32() else kind
    return pa.field(name, kind, not value.is_valid)


def add_null_columns(snapshot: Snapshot, schema: pa.Schema) -> Snapshot:
    """Add columns of nulls; no file is written."""

    def make(current: Snapshot, _: list[Fragment]) -> op.Operation:
        merged, own = _merged(current, LanceSchema.from_arrow(schema, next_field_id(current.manifest)))
        if not all(f.nullable for f in own.walk() if current.manifest.schema.by_id(f.id) is None):
            raise InvalidArgumentError("a column without values must be nullable")
        return op.Merge(current.manifest.fragments, merged)

    return replanned_with_files(snapshot, make)


class Feed:
    """Slices a stream to the lengths of the requested batches."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema, self._batches = schema, batches
        self._waiting: pa.Table = pa.Table.from_batches([], schema)

    def __call__(self, batch_of_rows: pa.RecordBatch) -> pa.RecordBatch:
        while self._waiting.num_rows < batch_of_rows.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                raise RowsDoNotFitError("Stream ended before producing values for all rows in dataset")
            self._waiting = pa.concat_tables([self._waiting, pa.Table.from_batches([batch])])
        part = self._waiting.slice(0, batch_of_rows.num_rows)
        self._waiting = self._waiting.slice(batch_of_rows.num_rows)
        return one_batch(part)

    def check_end(self) -> None:
        """Raise ``RowsDoNotFitError`` if rows remain."""
        if self._waiting.num_rows or any(b.num_rows for b in self._batches):
            raise RowsDoNotFitError("Stream produced more values than expected for dataset")


# --- joins -----------------------------------------------------------------------------------------------------


def merge(
    snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None = None, *, nulls: NullPolicy = "error"
) -> Snapshot:
    """Add the columns of ``data`` to the rows with the same key; other rows get nulls.

    ``left_on`` may be ``_rowid`` or ``_rowaddr``.  If several rows of ``data`` have the same key, the first one counts.
    Null keys match nothing.  Raises ``InvalidArgumentError`` if a key column is missing, ``SchemaMismatchError`` if the
    key types differ or a null would be lost.
    """
    values, schema = join_values(snapshot, data, left_on, right_on)
    check_new(snapshot.manifest.schema, schema.names)
    if is_id(snapshot, left_on):  # ids are only valid in this version
        return add_columns(snapshot, schema, (), values, nulls=nulls, repeatable=False, row_metadata=(left_on,))
    return add_columns(snapshot, schema, [left_on], values, nulls=nulls)


def is_id(snapshot: Snapshot, name: str) -> bool:
    """Whether a name is ``_rowid`` or ``_rowaddr``, and not a column."""
    return name in (ROW_ID, ROW_ADDRESS) and name not in snapshot.schema.names


def join_values(snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None) -> tuple[Values, pa.Schema]:
    """Return a function that looks up the rows of ``data`` by key, and its output schema."""
    indices_of, rest = matching(snapshot, data, left_on, right_on)

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        return one_batch(rest.take(indices_of(batch.column(0))))

    return values, pa.schema([f.with_nullable(True) for f in rest.schema])


def matching(
    snapshot: Snapshot, data: pa.Table, left_on: str, right_on: str | None
) -> tuple[Callable[[pa.Array], pa.Array], pa.Table]:
    """Return a function that maps keys to the first matching row of ``data`` or null, and ``data`` without its key.

    Raises ``InvalidArgumentError`` and ``SchemaMismatchError``, see :func:`merge`.
    """
    right_on = right_on or left_on
    left_schema = snapshot.schema
    if is_id(snapshot, left_on):
        left_schema = left_schema.append(pa.field(left_on, pa.uint64()))
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

    def indices_of(values: pa.Array) -> pa.Array:
        return pc.index_in(values.cast(kind) if values.type != kind else values, value_set=keys, skip_nulls=True)

    return indices_of, rest


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


# --- metadata only -----------------------------------------------------------------------------------------------


def drop_columns(snapshot: Snapshot, columns: Sequence[str]) -> Snapshot:
    """Drop columns or nested fields.  The files keep them until compaction.

    Raises ``InvalidArgumentError`` for an unknown column, or if no column would remain.
    """

    def make(current: Snapshot, _: list[Fragment]) -> op.Operation:
        view = current.view
        dropped = {id for c in columns for id in (f.id for f in view.schema.field(c).walk())}
        # A null companion is dropped with its column.
        dropped |= {view.mask_ids[id] for id in dropped if id in view.mask_ids}
        whole = current.manifest.schema
        rest = whole.project_ids(f.id for f in whole.walk() if not f.children and f.id not in dropped)
        if not {f.id for f in rest.fields} - set(view.mask_ids.values()):
            raise InvalidArgumentError("cannot drop all columns of a dataset")
        return projection(current.manifest, LanceSchema(rest.fields, whole.metadata))

    if not columns:
        raise InvalidArgumentError("there are no columns to drop")
    return replanned_with_files(snapshot, make)


def projection(manifest: Manifest, schema: LanceSchema) -> op.Operation:
    """Return the operation that changes the schema to a subset of the fields, possibly renamed."""
    if not manifest.storage_version.is_legacy:
        return op.Project(schema)
    # Readers of the legacy format do not support projections.
    schema = schema.with_dictionaries(manifest.schema.dictionaries)
    return op.Merge(with_files_of(manifest.fragments, schema), schema)


def alter_columns(
    snapshot: Snapshot, alterations: Sequence[Mapping[str, object]], *, nulls: NullPolicy = "error"
) -> Snapshot:
    """Rename columns, change their nullability, or cast them.

    Each alteration has a ``path`` and any of ``name``, ``nullable`` and ``data_type``.  A cast rewrites the column and
    drops its indices.  Raises ``InvalidArgumentError`` and ``SchemaMismatchError``.
    """

    def make(current: Snapshot, written: list[Fragment]) -> op.Operation:
        fields = {f.id: f for f in current.manifest.schema.fields}
        casts: dict[int, tuple[Field, pa.DataType]] = {}
        storage = current.manifest.storage_version
        for alteration in alterations:
            target, top = _altered(current, fields, alteration)
            new_type = alteration.get("data_type")
            if new_type is not None:
                _check_castable(current, target, top, str(alteration["path"]))
                casts[target.id] = target, new_type
        schema = current.manifest.schema
        fragments = list(current.manifest.fragments)
        first = next_field_id(current.manifest)
        for id, (field, kind) in casts.items():
            top, *inside = chain = [*current.manifest.schema.above(field), field]
            arrow = _narrowed(fields[top.id], chain, kind)
            new = _beneath(LanceSchema.from_arrow(pa.schema([arrow]), first).fields[0], chain[:-1])
            first = max(f.id for f in (*new.walk(), *fields[top.id].walk())) + 1
            column = Target(LanceSchema((new,), {}), storage, nulls=nulls, extend=True)
            values = _caster(arrow, [f.name for f in inside])
            with current.store.write_group() as group:
                read = LanceSchema((top,), {})
                readers = joined(together(current.readers), [read])
                every = (f for r in readers for f in widen(r, current, column, read, values, group))
                for i, wide in enumerate(every):
                    written.append(replace(wide, files=wide.files[-1:]))
                    fragments[i] = replace(fragments[i], files=(*fragments[i].files, wide.files[-1]))
            for _ in inside:
                (new,) = new.children
            fields[top.id] = fields[top.id].swapped({id: new})
        fields_left = tuple(fields.values())
        schema = LanceSchema(fields_left, schema.metadata)
        if len(set(schema.names)) < len(fields_left):
            raise InvalidArgumentError(
                f"two columns would have the same name: {next(n for n in schema.names if schema.names.count(n) > 1)!r}",
                help="choose another name",
            )
        if not casts:
            return projection(current.manifest, schema)
        schema = schema.with_dictionaries(current.manifest.schema.dictionaries)
        return op.Merge(with_files_of(fragments, schema), schema)

    return replanned_with_files(snapshot, make)


def _check_castable(snapshot: Snapshot, field: Field, top: Field, path: str) -> None:
    """Raise ``InvalidArgumentError`` for a field, of the column ``top``, that cannot be cast."""
    above, storage = snapshot.manifest.schema.above(field), snapshot.manifest.storage_version
    if field.is_dictionary or any(f.logical_type != "struct" or f.is_column for f in above):
        raise InvalidArgumentError("only columns and fields of structs can be cast", column=path)
    if above and storage < StorageVersion(2, 1):
        raise InvalidArgumentError(f"fields of structs cannot be cast in version {storage}", column=path)
    if snapshot.view.has_mask(top.name):
        raise InvalidArgumentError(
            'a column whose nulls are stored in a companion column (nulls="mask") cannot be cast',
            help="add a column of the new type with add_columns, and drop this one",
            column=top.name,
        )


def _narrowed(altered: Field, chain: Sequence[Field], kind: pa.DataType) -> pa.Field:
    """Return the Arrow field of a column with only one of its fields, which ``chain`` leads to, as another type."""
    fields = {f.id: f for f in altered.walk()}
    last = fields[chain[-1].id]
    arrow = pa.field(last.name, kind, last.nullable)
    for parent in reversed(chain[:-1]):
        arrow = pa.field(fields[parent.id].name, pa.struct([arrow]), parent.nullable)
    return arrow


def _beneath(field: Field, parents: Sequence[Field]) -> Field:
    """Give the structs around a new field the ids of existing ones."""
    if not parents:
        return field
    child = replace(_beneath(field.children[0], parents[1:]), parent_id=parents[0].id)
    return replace(field, id=parents[0].id, parent_id=parents[0].parent_id, children=(child,))


def _caster(field: pa.Field, path: Sequence[str]) -> Values:
    """Return the function that casts a column, or the field at ``path`` of a struct, without its other fields."""

    def cast(array: pa.Array, one: pa.Field, path: Sequence[str]) -> pa.Array:
        if not path:
            return array.cast(one.type)
        inner = cast(array.flatten()[array.type.get_field_index(path[0])], one.type.field(0), path[1:])
        return pa.StructArray.from_arrays([inner], fields=list(one.type), mask=array.is_null())

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return pa.RecordBatch.from_arrays([cast(batch.column(0), field, path)], schema=pa.schema([field]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise RowsDoNotFitError(f"the column cannot be cast: {e}", column=field.name) from e

    return values


def _altered(snapshot: Snapshot, fields: dict[int, Field], alteration: Mapping[str, object]) -> tuple[Field, Field]:
    unknown = set(alteration) - {"path", "name", "nullable", "data_type"}
    path = alteration.get("path")
    if unknown or not isinstance(path, str):
        raise InvalidArgumentError(
            f"invalid alteration with the keys {sorted(alteration)}",
            help="pass a path, and any of name, nullable and data_type",
        )
    field = snapshot.view.schema.field(path)
    top = next(f for f in snapshot.view.schema.fields if any(c.id == field.id for c in f.walk()))
    name, nullable = alteration.get("name"), alteration.get("nullable")
    if nullable is not None:
        flag("nullable", nullable)
    if name is None and nullable is None and alteration.get("data_type") is None:
        raise InvalidArgumentError("the alteration is empty", help="pass name, nullable or data_type", column=path)
    harder = nullable is False and field.nullable
    if harder and (field.id != top.id or snapshot.count(pc.field(top.name).is_null())):
        raise InvalidArgumentError("the column may have nulls, so it must stay nullable", column=path)
    current = next(f for f in fields[top.id].walk() if f.id == field.id)
    changed = replace(
        current,
        name=current.name if name is None else str(name),
        nullable=current.nullable if nullable is None else bool(nullable),
    )
    fields[top.id] = fields[top.id].swapped({field.id: changed})
    mask = snapshot.view.mask_of(top.name)
    if mask is not None and field.id == top.id and name is not None:
        others = [f.name for id, f in fields.items() if id != mask.id]
        fields[mask.id] = null_masks.renamed(fields[mask.id], changed.name, others)
    return field, top


def in_batches(values: Values, batch_size: int) -> Values:
    """Apply ``values`` to slices of up to ``batch_size`` rows, which must be positive."""
    if batch_size < 1:
        raise InvalidArgumentError(f"batch_size must be a positive integer, got {batch_size}")

    def of_parts(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows <= batch_size:
            return values(batch)
        parts = [_new_values(values, batch.slice(at, batch_size)) for at in range(0, batch.num_rows, batch_size)]
        try:
            return one_batch(pa.Table.from_batches(parts))
        except pa.ArrowInvalid as e:
            raise RowsDoNotFitError(f"the new columns differ from batch to batch: {e}") from e

    return of_parts


# --- all kinds of transforms -------------------------------------------------------------------------------------


def add(
    snapshot: Snapshot,
    transforms: Any,
    read: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    *,
    batch_size: int | None = None,
    nulls: NullPolicy = "error",
) -> Snapshot:
    """Add columns from any kind of ``transforms``.

    ``transforms`` are SQL expressions by name; a field, fields or a schema of null columns; a function of record
    batches with the columns ``read`` and up to ``batch_size`` rows; or rows in dataset order.
    """
    options = {"read_columns": read, "reader_schema": schema, "batch_size": batch_size}
    if isinstance(transforms, Mapping):
        check_use(options, ("batch_size",), "expressions")
        return add_expressions(snapshot, transforms, nulls=nulls)
    if isinstance(transforms, pa.Field):
        transforms = [transforms]
    if isinstance(transforms, list) and transforms and all(isinstance(f, pa.Field) for f in transforms):
        transforms = pa.schema(transforms)
    if isinstance(transforms, pa.Schema):
        check_use(options, (), "columns without values")
        return add_null_columns(snapshot, transforms)
    if callable(transforms):
        new_schema = getattr(transforms, "output_schema", None) or schema
        if new_schema is None:
            rows = snapshot.take(np.arange(min(1, snapshot.count())), snapshot.view.columns(read))
            first = rows.combine_chunks().to_batches()
            if not first:
                raise InvalidArgumentError(
                    "the function needs an output_schema: the dataset has no rows to infer it from"
                )
            result = transforms(first[0])
            if not isinstance(result, pa.RecordBatch):
                raise InvalidArgumentError(f"the function must return a RecordBatch, got {type(result).__name__}")
            new_schema = result.schema
        values = transforms if batch_size is None else in_batches(transforms, batch_size)
        values = with_columns(values, new_schema)
        return add_columns(snapshot, new_schema, read, values, nulls=nulls, by_fragment=True)
    check_use(options, ("reader_schema",), "rows")
    feed, first = Feed(*input_rows.stream(transforms, schema)), snapshot.schema.names[:1]
    return add_columns(snapshot, feed.schema, first, feed, nulls=nulls, repeatable=False, check=feed.check_end)


def check_use(options: Mapping[str, object], applicable: Collection[str], what: str) -> None:
    """Reject options that do not apply to ``what``; for expressions ``batch_size`` is a hint."""
    useless = [name for name, value in options.items() if value is not None and name not in applicable]
    if useless:
        raise WrongTypeError(f"{useless[0]} does not apply to {what}", help="leave it out")
