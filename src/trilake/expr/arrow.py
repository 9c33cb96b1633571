"""pyarrow expressions: evaluated by Arrow, and decoded into predicate trees for data skipping."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from trilake.errors import FilterError
from trilake.expr.predicate import Conjunct, Undecoded


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """The value of ``expression`` for each row, in the order of the rows."""
    try:
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
                acero.Declaration("project", acero.ProjectNodeOptions([expression], ["m"])),
            ]
        )
        result = plan.to_table(use_threads=False)["m"]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise FilterError(f"Arrow cannot evaluate the filter: {error}", filter=str(expression)) from error
    if not pa.types.is_boolean(result.type):
        raise FilterError(f"the filter is not a condition but of type {result.type}", filter=str(expression))
    return result


def decode(expression: pc.Expression, schema: pa.Schema) -> tuple[Conjunct, ...]:
    """The conjuncts of an expression.  Raises :class:`FilterError` for unknown columns and for what is no condition."""
    text = str(expression)
    columns = [name for name in schema.names if name in text]
    empty = pa.table([pa.array([], f.type) for f in schema], schema=schema)
    evaluate(expression, empty)
    return (Conjunct(text, Undecoded(text, tuple((c,) for c in columns))),)
