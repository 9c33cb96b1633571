"""Lance datasets as source and target of conversions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import mapped
from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedProtocolError
from trilake.expr import Filter
from trilake.expr.views import without_views, without_views_type
from trilake.lance.commands.fragment_writer import Target as Stored
from trilake.lance.commands.fragment_writer import WriteOptions, discard, write_fragments
from trilake.lance.commands.write import commit_write
from trilake.lance.commands.write import plan_write as plan_dataset
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.scan import ScanPlan, scan
from trilake.lance.table import LanceTable, write_options
from trilake.lance.versions.manifest import Fragment
from trilake.storage.base import Store
from trilake.table.conversion import Done, Piece, Source, TargetRequest, packed, plain_schema
from trilake.table.table import FilterLike

_T = pa.types

# --- source ----------------------------------------------------------------------------------------------------------


def _rows_of(
    store: Store, fragments: Sequence[Fragment], stored: LanceSchema, names: Sequence[str], filter: Filter | None
) -> Iterator[pa.RecordBatch]:
    view = View(stored)
    by_name = {f.name: f for f in view.schema.fields}
    columns = LanceSchema(tuple(by_name[n] for n in names), view.schema.metadata)
    readers = [FragmentReader(store, f, stored) for f in fragments]
    return scan(ScanPlan(view, columns, filter, batch_size=_LANCE_BATCH), readers)


_LANCE_BATCH = 1 << 16


def lance_source(table: LanceTable, columns: list[str] | None, filter: FilterLike | None) -> Source:
    """Return the rows of a table in pieces.  Raises ``InvalidArgumentError`` and ``FilterError``."""
    snapshot = table.snapshot
    schema = plain_schema(table.projected_schema(columns))
    bound = snapshot.filter(filter)

    def piece(some: Sequence[Fragment]) -> Piece:
        return partial(_rows_of, snapshot.store, some, snapshot.manifest.schema, schema.names, bound)

    fragments = snapshot.manifest.fragments

    def sized() -> list[tuple[Fragment, int]]:
        return [(f, sum(e.size_bytes or snapshot.store.head(e.key).size for e in f.files)) for f in fragments]

    return Source(
        uri=table.uri,
        format="lance",
        version=table.version,
        schema=schema,
        partition_by=(),
        rows=table.count() if filter is None else None,
        whole=(piece(fragments),),
        cut=lambda: tuple((piece(run),) for run in packed(sized())),
    )


# --- target ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanceRows:
    """Fragments to write."""

    store: Store
    schema: LanceSchema
    names: tuple[str, ...]
    options: WriteOptions
    #: Whether dictionaries may grow; all files of a dataset share them, so only a single task may extend them.
    extend: bool
    runtime: Runtime
    version: StorageVersion

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[Fragment], LanceSchema]:
        target = Stored(self.schema, self.version, nulls=self.options.nulls, extend=self.extend)
        exact = self.options.nulls != "zero" and self.version.is_legacy
        flat = map(without_views, batches)
        checked = (self._checked(target, batch) if exact else batch for batch in flat)
        fragments = write_fragments(self.store, checked, target, self.options, self.runtime)
        return fragments, target.schema

    def _checked(self, target: Stored, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check that a batch has no empty strings that would be read back as null."""
        for field in target.view.schema.fields:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                continue
            path = _lost_empty(field.storage_field, batch.column(at), hidden=target.view.has_mask(field.name))
            if path is not None:
                top = path == field.name
                raise SchemaMismatchError(
                    "an empty value would be read back as null: this column cannot distinguish them",
                    help='pass options={"nulls": "mask"} for a new dataset' if top else "fill the empty values",
                    column=path,
                )
        return batch

    def read_back(self, written: tuple[list[Fragment], LanceSchema]) -> Iterator[pa.RecordBatch]:
        fragments, schema = written
        return _rows_of(self.store, fragments, schema, self.names, None)


def _lost_empty(field: pa.Field, array: pa.Array, *, hidden: bool = False) -> str | None:
    """Return the path of a nullable string or binary field with an empty value.

    With ``hidden``, nulls of the field itself are stored in a companion.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _lost_empty(field, array.storage, hidden=hidden)
    below: list[tuple[pa.Field, pa.Array]] = []
    if _T.is_struct(field.type) and _T.is_struct(kind):
        children = {f.name: child for f, child in zip(kind, array.flatten())}
        below = [(f, children[f.name]) for f in field.type if f.name in children]
    elif hasattr(field.type, "value_field") and hasattr(kind, "value_field"):
        below = [(field.type.value_field, array.flatten())]
    for child, values in below:
        path = _lost_empty(child, values)
        if path is not None:
            return f"{field.name}.{path}"
    if hidden or not field.nullable:
        return None
    strings = _T.is_string(field.type) or _T.is_large_string(field.type)
    if not (strings or _T.is_binary(field.type) or _T.is_large_binary(field.type)):
        return None
    if _T.is_dictionary(kind):
        array = array.dictionary_decode()
    elif not (_T.is_string(kind) or _T.is_binary(kind) or _T.is_large_string(kind) or _T.is_large_binary(kind)):
        array = array.cast(field.type)
    return field.name if pc.any(pc.equal(pc.binary_length(array), 0)).as_py() else None


class LanceTarget:
    """A Lance dataset to write as one version."""

    def __init__(
        self, store: Store, mode: str, options: WriteOptions, schema: pa.Schema, *, distributed: bool, runtime: Runtime
    ) -> None:
        self.store = store
        kind: Any = {"error": "create"}.get(mode, mode)
        self.plan = plan_dataset(store, kind, runtime, options)
        schema = for_lance(schema, self.plan.version, dictionaries=not distributed)
        target = self.plan.target(schema)
        have = set(target.view.schema.names)
        if set(schema.names) != have:
            raise SchemaMismatchError(
                f"the rows have columns {', '.join(schema.names)}, the dataset has {', '.join(sorted(have))}",
                help="choose columns=[…] to match the dataset",
                file=store.uri,
            )
        self.exact = options.nulls != "zero" or not self.plan.version.is_legacy
        self.options = options
        extend = target.extend and not distributed
        self.rows = LanceRows(
            store, target.schema, tuple(schema.names), options, extend, self.plan.runtime, self.plan.version
        )

    def commit(self, written: Sequence[tuple[list[Fragment], LanceSchema]]) -> Done:
        fragments = [f for some, _ in written for f in some]
        # A single task may have extended the dictionaries.
        schema = written[0][1] if len(written) == 1 else self.rows.schema
        target = Stored(schema, self.plan.version, nulls=self.options.nulls, extend=self.rows.extend)
        size = sum(self.store.head(e.key).size for f in fragments for e in f.files)
        snapshot = commit_write(self.store, self.plan, target, fragments)
        return Done(snapshot.version, sum(len(f.files) for f in fragments), size)

    def discard(self, written: Sequence[tuple[list[Fragment], LanceSchema]]) -> None:
        for fragments, _ in written:
            discard(self.store, fragments)


def lance_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> LanceTarget:
    """Create the target.  Raises ``SchemaMismatchError``, and ``InvalidArgumentError`` for partitions."""
    if request.partition_by:
        raise InvalidArgumentError("Lance does not support partitions", help="leave partition_by out")
    options, runtime = write_options(request.options), request.runtime
    return LanceTarget(store, request.mode, options, source.schema, distributed=request.distributed, runtime=runtime)


def for_lance(schema: pa.Schema, version: StorageVersion, *, dictionaries: bool) -> pa.Schema:
    """Convert a schema to supported types: without views and run-ends, and dictionaries only if ``dictionaries``.

    Raises ``SchemaMismatchError`` for an unsupported type.
    """

    def storable(kind: pa.DataType) -> pa.DataType:
        if _T.is_decimal(kind) and kind.bit_width < 128:
            return pa.decimal128(kind.precision, kind.scale)
        if not _T.is_dictionary(kind):
            return kind
        values = kind.value_type
        indexed = _T.is_string(values) or _T.is_binary(values) or _T.is_integer(values)
        return kind if dictionaries and indexed else storable(values)

    fields = [one.with_type(mapped(without_views_type(one.type), storable)) for one in schema]
    lance_schema = pa.schema(fields, schema.metadata)
    try:
        version.check_types(LanceSchema.from_arrow(lance_schema))
    except UnsupportedProtocolError as e:
        raise SchemaMismatchError(
            f"a column cannot be stored in Lance: {e.message}",
            help=f"leave it out with columns=[…], or {e.help}",
            column=str(e.context.get("column")),
        ) from e
    return lance_schema
