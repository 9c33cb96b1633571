"""UPDATE a file without decoding unchanged columns: their column chunks are copied.

A rewrite of a file spends most of its time on columns that ``SET`` does not assign.  Here, only assigned columns are
encoded, and only columns that expressions, constraints and the change data feed need are decoded.  The rows keep their
order.

:meth:`Splicing.of` checks for which commands the result equals that of a full rewrite, and :meth:`Splicing.update` for
which files.  In all other cases, and after any error, all columns are rewritten; that rewrite reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import types_in
from trilake.delta.commands.rows.row_changes import ChangedFile, ChangedPart, RowChangeWriter, gathered
from trilake.delta.commands.write.assignments import Assignments
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.spliced_file import OldStatistics, SplicedFile
from trilake.delta.protocol.partitions import format_values
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.type_widening import has_type_changes
from trilake.delta.rules.constraints import forbids_null
from trilake.delta.rules.row_rules import RowPipeline, RowRules
from trilake.delta.scan.conform import as_nullable
from trilake.delta.scan.parquet_rows import as_strings, rows_as_stored
from trilake.delta.scan.read import Positions, keys_mask, locate, partition_constants
from trilake.delta.scan.scan import ReadPlan
from trilake.errors import CorruptFileError, ExpressionError, ObjectNotFoundError, SchemaMismatchError
from trilake.expr import Expression
from trilake.parquet.files import DAMAGE, Footer, checked_footer, open_parquet
from trilake.parquet.old_calendar import rebasing_of
from trilake.parquet.splice import NotSpliceable, Parts
from trilake.parquet.untyped import has_untyped
from trilake.parquet.variants import is_shredded
from trilake.storage.base import Store

#: Rows that are updated together, and buffered bytes of their columns.
_CHUNK, _WAITING = 1 << 17, 64 << 20
#: The most bytes that the columns read of one row group may take, since all are in memory at once.
_LARGEST_GROUP = 512 << 20
_TARGET = "delta.targetFileSize"


@dataclass(frozen=True)
class _Group:
    """The columns read of a row group: old values of assigned columns, which rows match, and their old images."""

    rows: int
    old: list[pa.RecordBatch] = field(default_factory=list)
    matching: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    matched: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of matching rows."""
        return sum(b.num_rows for b in self.matched)

    @property
    def size(self) -> int:
        return sum(b.nbytes for b in (*self.old, *self.matched))


@dataclass(frozen=True)
class Splicing:
    """The parameters of an UPDATE that are the same for all files.

    ``read`` reads the needed columns, ``files`` writes the table's files, and ``rules`` are the rules for the needed
    columns.  ``assigned`` are the columns of ``files.schema`` that change; ``not_null`` are columns that are not read,
    and must not be null in rows that change.
    """

    store: Store
    read: ReadPlan
    files: FilePlan
    assignments: Assignments
    rules: RowRules
    assigned: tuple[StructField, ...]
    not_null: tuple[StructField, ...]
    feed: bool

    @classmethod
    def of(
        cls, store: Store, wide: ReadPlan, files: FilePlan, assignments: Assignments, rules: RowRules, *, feed: bool
    ) -> Splicing | None:
        """The splicing of a command; ``None`` if unassigned columns may change, or rows are stored differently.

        ``wide`` reads all columns of the table, ``rules`` are the rules for whole rows.
        """
        is_parquet = files.provider == "parquet" and files.engine.format(files.provider) is None
        more = bool(files.extra) or len(files.partition_schema) > 0
        if not is_parquet or more or rules.generated or rules.identities or rules.defaults or rules.needs_spark:
            return None
        schema = files.schema
        assigned = tuple(f for f in schema.fields if f.name in {t.path[0] for t in assignments.targets})
        names = {f.name for f in assigned}
        if names.intersection(files.partition_columns) or any(pa.types.is_nested(f.type.arrow) for f in assigned):
            return None
        if not names.issuperset(rules.lengths) or has_type_changes(schema):
            return None
        column_names = set(names)
        for value in (*assignments.values, *(c.condition for c in rules.checks)):
            if isinstance(value, Expression):
                column_names |= value.columns
        not_null = [f for f in rules.schema.fields if not f.nullable and f.name not in files.partition_columns]
        column_names |= {f.name for f in rules.schema.fields if forbids_null(f.type)}
        column_names |= {f.name for f in rules.schema.fields if not f.nullable and f.name in files.partition_columns}
        if feed:
            column_names = set(schema.names)
        fields = tuple(f for f in rules.schema.fields if f.name in column_names)
        return cls(
            store,
            replace(
                wide,
                fields=tuple(f for f in wide.fields if f.name in column_names),
                output=tuple(n for n in wide.output if n in column_names),
            ),
            files,
            assignments,
            replace(
                rules,
                schema=StructType(fields),
                source=StructType(tuple(f for f in rules.source.fields if f.name in column_names)),
                present=rules.present & column_names,
            ),
            assigned,
            tuple(f for f in not_null if f.name not in column_names),
            feed,
        )

    def update(
        self, task: int, source: ChangedFile, matched: Positions | None, stated: OldStatistics
    ) -> ChangedPart | None:
        """Write a file with new values in the rows ``matched``, or in all rows if it is ``None``.

        Returns ``None``, without side effects, if the rows must be rewritten.
        """
        if source.file.vector is not None or "" in source.file.partition_values.values():
            return None
        if _TARGET in self.files.configuration and source.file.size > self.files.target_size:
            return None
        file_store, key = locate(self.store, source.file.path)
        pipeline = self.rules.start(task)
        try:
            with (
                RowChangeWriter(self.store, self.files, task, feed=self.feed) as out,
                file_store.open_input(key) as source_file,
            ):
                old = Parts(source_file)
                schema, footer = self._checked(source_file, old)
                if stated.records() != sum(old.rows):
                    raise NotSpliceable("the statistics have a different row count")
                file = out.rows.splice(self._partition(source), old, stated)
                groups = self._groups(source, old.rows, matched)
                # An evaluation has a fixed cost of thousands of rows.
                for some in gathered(groups, lambda g: (g.count, g.size), (_CHUNK, _WAITING)):
                    self._write(out, file, pipeline, some, schema, _decimals_as_integers(schema, footer))
                new_files, cdc = out.close([pipeline])
        except (NotSpliceable, ObjectNotFoundError, CorruptFileError, SchemaMismatchError, ExpressionError):
            return None
        except OSError as e:
            if type(e) is not OSError:  # errors of the store have other types
                raise
            return None
        updated = out.counts.updated
        return ChangedPart(new_files, cdc, replaced=(source.number,), updated=updated, copied=sum(old.rows) - updated)

    def _checked(self, opened: pa.NativeFile, old: Parts) -> tuple[pa.Schema, Footer]:
        """The assigned columns as the file stores them.

        Raises ``NotSpliceable`` if the file's columns differ from the table's current ones, or lack space for the new
        values.
        """
        try:
            file = open_parquet(opened)
            footer, rebasing = checked_footer(opened, file), rebasing_of(file)
        except DAMAGE as e:
            raise NotSpliceable(f"the file is damaged: {e}") from e
        if has_untyped(file.schema_arrow):
            raise NotSpliceable("a column of the file has no type")
        if any(is_shredded(t) for t in types_in(pa.struct(list(file.schema_arrow)))):
            raise NotSpliceable("the file may have shredded variants, which the table may not allow")
        names = self.files.file_schema.names
        if set(old.columns) != {n.encode() for n in names} or len(old.columns) != len(names):
            raise NotSpliceable("the file and the table have different columns")
        if sum(old.rows) != file.metadata.num_rows or 0 in (old.rows or [0]):
            raise NotSpliceable("the row groups do not have as many rows as the file")
        assigned_names = [f.physical_name for f in self.assigned]
        if rebasing is not None and not rebasing.changes.keys().isdisjoint(assigned_names):
            raise NotSpliceable("the file has dates or times in the old calendar")
        # Some columns may exceed the memory limit.
        read = {f.physical_name for f in self.read.fields}
        if any(sum(c.uncompressed_size for c in g if c.path.split(".")[0] in read) > _LARGEST_GROUP for g in footer):
            raise NotSpliceable("a row group is large")
        leaves = {f.physical_name: old.columns[f.physical_name.encode()].leaf for f in (*self.assigned, *self.not_null)}
        for f in self.not_null:
            leaf = leaves[f.physical_name]
            if leaf is None:
                raise NotSpliceable("a column that must not be null is nested")
            required = file.metadata.schema.column(leaf).max_definition_level == 0
            if not required and any(group[leaf].null_count != 0 for group in footer):
                raise NotSpliceable("a non-nullable column may contain nulls")
        fields = []
        for name in assigned_names:
            leaf = leaves[name]
            if leaf is None or footer[0][leaf].repeated:
                raise NotSpliceable("a column is nested")
            optional = file.metadata.schema.column(leaf).max_definition_level > 0
            fields.append(self.files.file_schema.field(name).with_nullable(optional))
        return pa.schema(fields), [
            [group[i] for i in map(leaves.__getitem__, assigned_names) if i is not None] for group in footer
        ]

    def _partition(self, source: ChangedFile) -> tuple[str | None, ...]:
        columns = [self.files.schema.field(c) for c in self.files.partition_columns]
        plan = replace(self.read, fields=tuple(columns))
        constants = partition_constants([source.file], plan)
        out = []
        for f in columns:
            assert isinstance(f.type, PrimitiveType)
            value = constants[f.name]
            out += format_values(pa.repeat(value, 1) if value.is_valid else pa.nulls(1, value.type), f.type)
        return tuple(out)

    def _groups(self, source: ChangedFile, counts: Sequence[int], matched: Positions | None) -> Iterator[_Group]:
        names = [f.name for f in self.assigned]
        ends = iter(np.cumsum(counts).tolist())
        numbers = iter(counts)
        group, end = _Group(next(numbers)), next(ends)
        for positions, batch in rows_as_stored(self.store, source.file, self.read):
            at, first = 0, int(positions[0])
            while at < batch.num_rows:
                if first + at == end:
                    yield group
                    group, end = _Group(next(numbers)), next(ends)
                count = min(batch.num_rows - at, end - first - at)
                rows = batch.slice(at, count)
                hit = np.ones(count, bool) if matched is None else keys_mask(positions[at : at + count], matched)
                group.old.append(rows.select(names))
                group.matching.append(hit)
                if hit.any():
                    group.matched.append(as_strings(rows if hit.all() else rows.filter(pa.array(hit))))
                at += count
        yield group

    def _write(
        self,
        out: RowChangeWriter,
        file: SplicedFile,
        pipeline: RowPipeline,
        groups: Sequence[_Group],
        schema: pa.Schema,
        decimals_as_integers: bool,
    ) -> None:
        new = self._new_values(out, pipeline, [b for g in groups for b in g.matched])
        at = 0
        for group in groups:
            columns = []
            for f, in_file in zip(self.assigned, schema, strict=True):
                values = [] if new is None else new.column(f.name).slice(at, group.count)
                column = _replaced(group, f.name, values)
                if column.null_count and not in_file.nullable:
                    raise NotSpliceable("a column of the file is not nullable")
                columns.append(column)
            at += group.count
            fields = [f.with_type(c.type) for f, c in zip(schema, columns, strict=True)]
            table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
            if table.num_rows != group.rows:
                raise NotSpliceable("a row group does not have the expected number of rows")
            file.write_group(table, schema, decimals_as_integers=decimals_as_integers)

    def _new_values(
        self, out: RowChangeWriter, pipeline: RowPipeline, rows: Sequence[pa.RecordBatch]
    ) -> pa.RecordBatch | None:
        if not rows:
            return None
        old = pa.concat_batches(rows)
        assigned = self.assignments.apply(old).select(self.rules.source.names)
        ruled = pipeline.apply(assigned)
        fields = [self.files.schema.field(n) for n in ruled.schema.names]
        columns = [as_nullable(c, f.type.arrow) for c, f in zip(ruled.columns, fields, strict=True)]
        new = pa.RecordBatch.from_arrays(columns, [f.name for f in fields])
        out.record_update(new, [old])
        return new


def _replaced(group: _Group, name: str, new: pa.Array) -> pa.ChunkedArray:
    if group.count == group.rows:
        return pa.chunked_array([new])
    old = [b.column(name) for b in group.old]
    if pa.types.is_dictionary(old[0].type) and group.count:
        # With one dictionary, only indexes are replaced, and strings are not compared again.
        *old, new = pa.chunked_array([*old, new.dictionary_encode()]).unify_dictionaries().chunks
    out, at = [], 0
    for values, hit in zip(old, group.matching, strict=True):
        count = int(hit.sum())
        out.append(_with(values, hit, new.slice(at, count)) if count else values)
        at += count
    return pa.chunked_array(out)


def _with(old: pa.Array, hit: npt.NDArray[np.bool_], new: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(old.type):
        return pa.DictionaryArray.from_arrays(_with(old.indices, hit, new.indices), old.dictionary)
    return pc.replace_with_mask(old, pa.array(hit), new)


def _decimals_as_integers(schema: pa.Schema, footer: Footer) -> bool:
    """Whether the file stores decimals as integers if they fit."""
    pairs = zip(schema, footer[0], strict=True)
    return not any(
        pa.types.is_decimal(f.type) and f.type.precision <= 18 and "FIXED" in c.physical_type for f, c in pairs
    )
