"""``Projection``: columns that are SQL expressions of a dataset's, computed of each batch that a scan returns.

The plan names the columns that the expressions read; the scan or the search runs as it does without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.expr import Expression, evaluate_all, parse_expression
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import ROW_ID
from trilake.lance.scan.scan import one_array, one_batch
from trilake.lance.scan.sql_text import as_spark


@dataclass(frozen=True)
class Projection:
    """Columns by name, in order: each an expression, or the field of a column that is handed on as it is."""

    columns: Mapping[str, Expression | pa.Field]

    @classmethod
    def of(
        cls,
        texts: Mapping[str, str],
        schema: pa.Schema,
        *,
        before: Sequence[pa.Field] = (),
        behind: Sequence[pa.Field] = (),
    ) -> Projection:
        """Bind SQL to ``schema``; columns of the scan's own stand before and behind it, unless SQL has their names.

        Raises ``InvalidArgumentError``, and ``ExpressionError`` or ``UnsupportedExpressionError`` for SQL that cannot
        be computed.
        """
        if not texts:
            raise InvalidArgumentError("there is no column to return", help="pass None for all columns")
        columns = {name: _bound(name, text, schema) for name, text in texts.items()}
        first, last = ({f.name: f for f in some if f.name not in columns} for some in (before, behind))
        return cls({**first, **columns, **last})

    def __str__(self) -> str:
        texts = {n: one.text if isinstance(one, Expression) else one.name for n, one in self.columns.items()}
        return ", ".join(f"{text} as {name}" for name, text in texts.items())

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns that a batch must have."""
        own = [one.columns if isinstance(one, Expression) else {one.name} for one in self.columns.values()]
        return frozenset().union(*own)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the projected rows."""
        return pa.schema(
            pa.field(name, one.type) if isinstance(one, Expression) else one.with_name(name)
            for name, one in self.columns.items()
        )

    def project(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch.  Raises ``ExpressionError`` where a value cannot be computed."""
        expressions = {name: one for name, one in self.columns.items() if isinstance(one, Expression)}
        values = dict(zip(expressions, map(one_array, evaluate_all(list(expressions.values()), rows)), strict=True))
        arrays = [
            values[n] if isinstance(one, Expression) else rows.column(one.name) for n, one in self.columns.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _bound(name: object, text: object, schema: pa.Schema) -> Expression | pa.Field:
    if not isinstance(name, str) or not isinstance(text, str):
        raise WrongTypeError(
            f"the column {name!r} is made of {text!r}", help='pass SQL text by name, such as {"double": "n * 2"}'
        )
    if text in schema.names:  # of any type, and under any name, those included that SQL cannot compute with
        return schema.field(text)
    return parse_expression(as_spark(text), schema)


#: Names of columns, or SQL by the name of the column that it makes.
ColumnsLike = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class Selection:
    """The columns to read for those that were asked for, and what is made of them."""

    columns: LanceSchema
    with_row_id: bool
    projection: Projection | None = None

    @classmethod
    def of(
        cls, view: View, columns: ColumnsLike | None, *, with_row_id: bool = False, scores: Sequence[pa.Field] = ()
    ) -> Selection:
        """Check what was asked for.

        Parameters
        ----------
        columns: names, or SQL by name; all columns where there are none.
        with_row_id: whether ``_rowid`` comes last.
        scores: the columns that a search makes, which SQL may name: the last one stands behind those asked for, before
            ``_rowid``, and others before them.

        Raises as :meth:`Projection.of` does.
        """
        if not isinstance(columns, Mapping):
            return cls(view.columns(columns or None), with_row_id)
        ids = pa.field(ROW_ID, pa.uint64())
        extra = [f for f in (*scores, ids) if f.name not in view.arrow.names]
        schema = pa.schema([*view.arrow, *extra], view.arrow.metadata)
        behind = [*scores[-1:], *([ids] if with_row_id else [])]
        projection = Projection.of(columns, schema, before=scores[:-1], behind=behind)
        stored = [name for name in view.schema.names if name in projection.reads]
        return cls(view.schema.project(stored), ROW_ID in projection.reads and ids in extra, projection)

    def show(self, rows: pa.Table) -> pa.Table:
        """Rows that were read, as they were asked for."""
        return rows if self.projection is None else pa.Table.from_batches([self.projection.project(one_batch(rows))])
