"""``Projection``: columns that are SQL expressions, computed for each batch that a scan returns.

The plan reads the columns of the expressions; the scan or search itself does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import InvalidArgumentError
from trilake.expr import Expression, evaluate_all
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import (
    ROW_ADDRESS,
    ROW_ID,
    ROW_METADATA,
    ROW_METADATA_TYPE,
    one_array,
    one_batch,
)
from trilake.lance.scan.parse_sql import PylanceSql, expression_of
from trilake.table.data_files import no_columns


@dataclass(frozen=True)
class Part:
    """A field in structs: its path, and the resulting Arrow field."""

    path: tuple[str, ...]
    field: pa.Field

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.path[:1])

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Extract its values; null if a struct above it is null."""
        array = rows.column(self.path[0])
        return pc.struct_field(array, list(self.path[1:]))


@dataclass(frozen=True)
class Projection:
    """Output columns by name, in order: expressions, nested fields, or unchanged columns."""

    columns: Mapping[str, Expression | Part | pa.Field]
    metadata: Mapping[bytes, bytes] | None = None

    @classmethod
    def of(
        cls,
        sql: Mapping[str, str],
        schema: pa.Schema,
        *,
        before: Sequence[pa.Field],
        behind: Mapping[str, pa.Field],
        parts: Mapping[str, Part],
    ) -> Projection:
        """Bind SQL to ``schema``; the scan adds columns ``before`` and ``behind``, unless SQL uses their names.

        ``parts`` are the fields in structs that SQL names as a whole.  Raises ``InvalidArgumentError``, and
        ``ExpressionError`` or ``UnsupportedExpressionError`` for SQL that cannot be computed.
        """
        if not sql:
            raise InvalidArgumentError("expected at least one column, got none", help="pass None for all columns")
        columns = {name: parts.get(term) or _bound(name, term, schema) for name, term in sql.items()}
        first = {f.name: f for f in before}
        return cls(_unless(first, columns) | columns | _unless(behind, columns))

    def __str__(self) -> str:
        return ", ".join(f"{_to_sql(one)} as {name}" for name, one in self.columns.items())

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns that a batch must have."""
        columns = [one.columns if isinstance(one, Expression | Part) else {one.name} for one in self.columns.values()]
        return frozenset().union(*columns)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(_field(name, one) for name, one in self.columns.items()).with_metadata(self.metadata)

    def project(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Compute the columns of a batch.  Raises ``ExpressionError`` if a value cannot be computed."""
        if not self.columns:
            return no_columns(rows.num_rows)
        expressions = {name: one for name, one in self.columns.items() if isinstance(one, Expression)}
        values = dict(zip(expressions, map(one_array, evaluate_all(list(expressions.values()), rows)), strict=True))

        def array(name: str, one: Expression | Part | pa.Field) -> pa.Array:
            if isinstance(one, Part):
                return one.of(rows)
            return values[name] if isinstance(one, Expression) else rows.column(one.name)

        arrays = [array(name, one) for name, one in self.columns.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _to_sql(one: Expression | Part | pa.Field) -> str:
    if isinstance(one, Part):
        return ".".join(one.path)
    return str(one.source if isinstance(one, Expression) else one.name)


def _field(name: str, one: Expression | Part | pa.Field) -> pa.Field:
    if isinstance(one, Part):
        return one.field.with_name(name)
    return pa.field(name, one.type) if isinstance(one, Expression) else one.with_name(name)


def _bound(name: object, sql: object, schema: pa.Schema) -> Expression | pa.Field:
    if not isinstance(name, str) or not isinstance(sql, str):
        raise WrongTypeError(
            f"expected SQL for the column {name!r}, got {sql!r}", help='pass SQL by name, such as {"double": "n * 2"}'
        )
    if sql in schema.names:  # also types and names that SQL cannot express
        return schema.field(sql)
    return expression_of(PylanceSql(sql), schema)


def _unless(fields: Mapping[str, pa.Field], chosen: Mapping[str, object]) -> dict[str, pa.Field]:
    return {name: f for name, f in fields.items() if name not in chosen}


def _read_places(projection: Projection, computed: Mapping[str, pa.Field]) -> tuple[str, ...]:
    return tuple(name for name in ROW_METADATA if name in projection.reads and name in computed)


def _part(view: View, name: str) -> Part | None:
    """The field in structs at a path; ``None`` for a top-level column, and for a field in lists."""
    field = view.schema.field(name)
    path = view.schema.path_of(field)
    if len(path) == 1 or any(f.logical_type != "struct" for f in view.schema.above(field)):
        return None
    nullable = field.nullable or any(f.nullable for f in view.schema.above(field))
    return Part(tuple(path), LanceSchema((replace(field, nullable=nullable),)).shown_schema.field(0))


#: Names of columns, or SQL by the name of the output column.
ColumnsLike = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class Selection:
    """The columns to read, and the projection to compute from them.

    ``row_metadata`` are the id columns, which the scan computes.
    """

    columns: LanceSchema
    row_metadata: tuple[str, ...] = ()
    projection: Projection | None = None

    @classmethod
    def of(
        cls,
        view: View,
        columns: ColumnsLike | None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        scores: Sequence[pa.Field] = (),
        scored: bool = True,
    ) -> Selection:
        """Check a selection of columns.

        Parameters
        ----------
        columns: names, or SQL by name; ``None`` for all columns.  An empty list selects only what the options add.
        with_row_id, with_row_address: whether ``_rowid`` and ``_rowaddr`` come last.
        scores: the columns that a search computes.  The last one follows the selected columns, before ``_rowid``,
            unless it is selected; others come first, unless SQL has their names.
        scored: whether the last one is returned if it is not selected.

        SQL and names may also refer to ``scores`` and :data:`~trilake.lance.scan.fragment_reader.ROW_METADATA`.
        """
        ids = [pa.field(name, ROW_METADATA_TYPE) for name in ROW_METADATA]
        computed = {f.name: f for f in (*scores, *ids) if f.name not in view.arrow.names}
        row_metadata = [ROW_ID] * with_row_id + [ROW_ADDRESS] * with_row_address
        conflicts = [name for name in row_metadata if name not in computed]
        if conflicts and conflicts != [ROW_ID]:
            raise InvalidArgumentError(
                f"the dataset already has a column {conflicts[-1]!r}", help="leave with_row_address out"
            )
        behind = {f.name: f for f in scores[-1:] if scored} | {n: pa.field(n, ROW_METADATA_TYPE) for n in row_metadata}
        if isinstance(columns, Mapping):
            schema = pa.schema([*view.arrow, *computed.values()], view.arrow.metadata)
            paths = (str(sql) for sql in columns.values() if view.schema.find(str(sql)))
            parts = {path: part for path in paths if (part := _part(view, path)) is not None}
            projection = Projection.of(columns, schema, before=scores[:-1], behind=behind, parts=parts)
            stored = [name for name in view.schema.names if name in projection.reads]
            return cls(view.schema.project(stored), _read_places(projection, computed), projection)
        if isinstance(columns, str):
            view.columns(columns)  # raises
        first = {f.name: f for f in scores[:-1]}
        names = [n for n in columns or () if n not in first or n not in computed]
        parts = {n: part for n in names if n not in computed and (part := _part(view, n)) is not None}
        empty = columns is not None and not columns
        if not empty:
            if (scored or not scores) and computed.keys().isdisjoint(names) and not parts:
                return cls(view.columns(names or None), tuple(row_metadata))
            names = names or view.schema.names
        stored_columns = (
            view.columns([n for n in names if n not in computed]) if set(names) - set(computed) else LanceSchema(())
        )
        fields = {f.name: f for f in stored_columns.shown_schema}
        chosen: dict[str, Part | pa.Field] = {}
        for name in names:
            if name in computed or name in parts:
                chosen[name] = computed.get(name) or parts[name]
            else:
                root = view.columns([name]).names[0]
                chosen[root] = fields[root]
        projection = Projection(_unless(first, chosen) | chosen | _unless(behind, chosen), view.arrow.metadata)
        return cls(stored_columns, _read_places(projection, computed), projection)

    def show(self, rows: pa.Table) -> pa.Table:
        return rows if self.projection is None else pa.Table.from_batches([self.projection.project(one_batch(rows))])
