"""Rows converted into a Lance dataset: one version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.storage.base import Store
from trilake.tools.convert import columns
from trilake.tools.convert.sources import LancePiece, Source
from trilake.tools.convert.targets.target import Done, TargetRequest

if TYPE_CHECKING:
    from trilake.lance.commands.fragment_writer import WriteOptions as LanceOptions
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.versions.manifest import Fragment

_T = pa.types


@dataclass(frozen=True)
class LanceRows:
    """Fragments of a Lance dataset."""

    store: Store
    schema: LanceSchema
    source_schema: pa.Schema
    options: LanceOptions
    #: Whether the fragments' dictionaries may grow: they are the dataset's, so only one task may do that.
    extend: bool
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[Fragment], LanceSchema]:
        from trilake.lance.commands.fragment_writer import Target as Stored
        from trilake.lance.commands.fragment_writer import write_fragments

        target = Stored(self.schema, nulls=self.options.nulls, extend=self.extend)
        exact = self.options.nulls != "zero"
        plain = (columns.plain(batch, self.source_schema) for batch in batches)
        checked = (self._checked(target, batch) if exact else batch for batch in plain)
        fragments = write_fragments(self.store, checked, target, self.options, self.runtime)
        return fragments, target.schema

    def _checked(self, target: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, if no empty text in it would be read as null."""
        for field in target.view.schema.fields:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                continue
            path = _lost_empty(field.storage_field, batch.column(at), hidden=target.view.has_mask(field.name))
            if path is not None:
                top = path == field.name
                raise SchemaMismatchError(
                    "an empty value would be read back as null, which is what Lance stores for a nullable text",
                    help='pass options={"nulls": "mask"} for a new dataset' if top else "fill the empty values",
                    column=path,
                )
        return batch

    def read_back(self, written: tuple[list[Fragment], LanceSchema]) -> Iterator[pa.RecordBatch]:
        fragments, schema = written
        return LancePiece(self.store, tuple(fragments), schema, self.names, None).batches()


def _lost_empty(field: pa.Field, array: pa.Array, *, hidden: bool = False) -> str | None:
    """The path of a nullable text or binary in which there is an empty value.

    ``hidden``: nulls of the field itself are kept elsewhere.
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
    texts = _T.is_string(field.type) or _T.is_large_string(field.type)
    if not (texts or _T.is_binary(field.type) or _T.is_large_binary(field.type)):
        return None
    if _T.is_dictionary(kind):
        array = array.dictionary_decode()
    elif not (_T.is_string(kind) or _T.is_binary(kind) or _T.is_large_string(kind) or _T.is_large_binary(kind)):
        array = array.cast(field.type)
    return field.name if pc.any(pc.equal(pc.binary_length(array), 0)).as_py() else None


class LanceTarget:
    """A Lance dataset: one version."""

    def __init__(
        self,
        store: Store,
        mode: str,
        options: LanceOptions,
        schema: pa.Schema,
        *,
        distributed: bool,
        runtime: Runtime,
    ) -> None:
        from trilake.lance.commands.write import plan_write as plan_dataset

        self.store = store
        kind: Any = {"error": "create"}.get(mode, mode)
        self.plan = plan_dataset(store, kind, runtime, options)
        target = self.plan.target(schema)
        have = set(target.view.schema.names)
        if set(schema.names) != have:
            raise SchemaMismatchError(
                f"the rows have the columns {', '.join(schema.names)}, the dataset has {', '.join(sorted(have))}",
                help="choose columns=[…] as the dataset has them",
                file=store.uri,
            )
        self.exact = options.nulls != "zero"
        self.options = options
        extend = target.extend and not distributed
        self.rows = LanceRows(store, target.schema, schema, options, extend, tuple(schema.names), self.plan.runtime)

    def commit(self, written: Sequence[tuple[list[Fragment], LanceSchema]]) -> Done:
        from trilake.lance.commands.fragment_writer import Target as Stored
        from trilake.lance.commands.write import commit_write

        fragments = [f for some, _ in written for f in some]
        # With the dictionaries of the one task that may have added to them.
        schema = written[0][1] if len(written) == 1 else self.rows.schema
        target = Stored(schema, nulls=self.options.nulls, extend=self.rows.extend)
        size = sum(self.store.head(e.key).size for f in fragments for e in f.files)
        snapshot = commit_write(self.store, self.plan, target, fragments)
        return Done(snapshot.version, sum(len(f.files) for f in fragments), size)

    def discard(self, written: Sequence[tuple[list[Fragment], LanceSchema]]) -> None:
        from trilake.lance.commands.fragment_writer import discard

        for fragments, _ in written:
            discard(self.store, fragments)


def lance_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> LanceTarget:
    """The target at a place.  Raises ``SchemaMismatchError``, and ``InvalidArgumentError`` for partitions."""
    from trilake.lance.table import write_options

    if request.partition_by:
        raise InvalidArgumentError("Lance datasets have no partitions", help="leave partition_by out")
    schema = columns.for_lance(source.schema, dictionaries=not request.distributed)
    options, runtime = write_options(request.options), request.engine.runtime
    return LanceTarget(store, request.mode, options, schema, distributed=request.distributed, runtime=runtime)
