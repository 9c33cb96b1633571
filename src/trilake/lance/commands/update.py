"""Update: write the matching rows with new values to new fragments, and delete the old rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trilake.common.arrow_types import is_list
from trilake.common.display import Displayed
from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError
from trilake.expr import Expression, evaluate_all
from trilake.expr.terms.duckdb_sql import Sql
from trilake.lance.commands.delete import mark_all
from trilake.lance.commands.fragment_writer import Target, WriteOptions, fitted, write_fragments
from trilake.lance.commands.replan import USUAL, Retries, replanned_with_files
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, FragmentReader, Ids, one_array, runs
from trilake.lance.scan.parse_sql import expression_of
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment
from trilake.table.table import FilterLike


@dataclass(frozen=True)
class UpdateResult(Displayed):
    """The version after an update, and the number of updated rows."""

    snapshot: Snapshot
    num_rows_updated: int


def update(
    snapshot: Snapshot,
    updates: Mapping[str, str],
    where: FilterLike | None = None,
    *,
    options: WriteOptions | None = None,
    retries: Retries = USUAL,
) -> UpdateResult:
    """Set columns to SQL expressions in the rows that match ``where``.

    Expressions use the old values.  After a conflict, the update is evaluated again on the newest version, as often as
    ``retries`` allows.  Raises ``InvalidArgumentError`` for an unknown column, ``ExpressionError``, ``FilterError``,
    ``ConflictError`` or ``WriteFailedError``.
    """
    expressions, write_options = bind(snapshot.schema, updates), options or WriteOptions()
    count = 0

    def plan(current: Snapshot, written: list[Fragment]) -> op.Operation:
        nonlocal count
        addresses: list[Ids] = [np.empty(0, np.uint64)]
        target = Target(current.manifest.schema, current.manifest.storage_version, nulls=write_options.nulls)
        rows = changed_rows(current, updates, where, addresses)
        written += write_fragments(current.store, rows, target, write_options, current.runtime)
        offsets = dict(runs(np.concatenate(addresses)))
        count = sum(map(len, offsets.values()))
        updated, removed = mark_all(current, offsets)
        return op.Update(removed, updated, current.moved(written, offsets.items()))

    if not expressions:
        raise InvalidArgumentError("there are no columns to update", help='pass {"column": "expression"}')
    changed = replanned_with_files(snapshot, plan, retries, by_ids=snapshot.names_ids(snapshot.filter(where)))
    return UpdateResult(changed, count)


def bind(schema: pa.Schema, updates: Mapping[str, str]) -> dict[str, Expression]:
    """Parse the expressions of an update; list literals get the type of their column."""
    expressions = {}
    for name, sql in updates.items():
        if name not in schema.names:
            raise InvalidArgumentError(
                f"column {name!r} not found in the dataset", help=columns_help(name, schema.names), column=name
            )
        if not isinstance(sql, str):
            raise WrongTypeError(
                f"the value of {name!r} must be SQL, got {type(sql).__name__}",
                help='pass a string such as "a + 1" or "\'x\'"',
            )
        kind = schema.field(name).type
        if is_list(kind) and sql.strip()[:1] == "[":
            expressions[name] = _vector(sql, kind)
        else:
            expressions[name] = expression_of(sql, schema)
    return expressions


def _vector(sql: str, kind: pa.DataType) -> Expression:
    """Parse a list literal such as ``[1.0, 2.0]``, which Spark SQL lacks.  Raises ``InvalidArgumentError``."""
    try:
        value = pa.scalar(json.loads(sql), kind)
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as e:
        raise InvalidArgumentError(f"{sql} is not a {kind}: {e}", help='write a list as "[1.0, 2.0]"') from e
    return Expression(sql, kind, (), Sql("NULL", "NULL"), value)


def changed_rows(
    snapshot: Snapshot,
    updates: Mapping[str, str],
    where: FilterLike | None,
    addresses: list[Ids],
    readers: Sequence[FragmentReader] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows with their new values; append their old addresses to ``addresses``."""
    expressions = bind(snapshot.schema, updates)
    plan = snapshot.plan(None, where, view=snapshot.rows_view, row_metadata=(ROW_ADDRESS,))
    for batch in snapshot.scan(plan, readers):
        addresses.append(batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False))
        rows = pa.Table.from_batches([batch]).drop_columns([ROW_ADDRESS])
        arrays = dict(zip(rows.schema.names, batch.columns))
        for name, values in zip(expressions, evaluate_all(list(expressions.values()), rows)):
            array, field = one_array(values), rows.schema.field(name)
            problem = f"{expressions[name].source} is of type {array.type} and cannot be stored as {field.type}"
            arrays[name] = fitted(array, field, problem)
        fields = [f.with_nullable(True) for f in rows.schema]
        yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=pa.schema(fields))
