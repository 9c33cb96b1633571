"""The ``SET`` of an UPDATE: new values by column, including nested fields, bound to a table.

A value is a SQL expression over the old row, or a literal.  Spark's ANSI store assignment applies: a value that does
not fit is an error.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import nulls
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, StructType, is_spatial
from trilake.delta.protocol.schema_edit import format_path, parse_path, spelled, type_at
from trilake.delta.rules.identity import identity_columns
from trilake.delta.rules.row_rules import sql_type
from trilake.delta.rules.store_assignment import assign_array, check_fields
from trilake.delta.scan.generated import generation_expression
from trilake.delta.scan.row_text import describe_row
from trilake.delta.scan.scan import read_schema
from trilake.errors import ExpressionError, InvalidArgumentError, SchemaMismatchError, stating
from trilake.expr import Expression, evaluate_all, parse_expression

Value = TypeVar("Value")


@dataclass(frozen=True)
class Target:
    """A column, or a nested struct field, to assign: its path in the table's spelling, and its type."""

    path: tuple[str, ...]
    type: DataType

    @property
    def name(self) -> str:
        return format_path(self.path)


def targets(names: Mapping[str, object], schema: StructType, *, uri: str) -> dict[str, Target]:
    """Resolve the names of an assignment.

    Raises ``SchemaMismatchError`` for an unknown column, and ``InvalidArgumentError`` for an identity column or one
    that is assigned twice, or both as a whole and in part.
    """
    result: dict[str, Target] = {}
    for name in names:
        path_parts = parse_path(name)
        # As Spark does, search for the column first, then for its fields.
        missing = "FIELD_NOT_FOUND" if schema.find(path_parts[0]) is not None else "UNRESOLVED_COLUMN.WITH_SUGGESTION"
        with stating({"FIELD_NOT_FOUND": missing}):
            path = spelled(schema, path_parts)
        for part in range(1, len(path)):
            if not isinstance(type_at(schema, path[:part]), StructType):
                raise InvalidArgumentError(
                    f"{name} is inside an array or map, which can only be assigned as a whole",
                    help=f"assign {format_path(path[:part])} as a whole",
                    column=name,
                    file=uri,
                    condition="DELTA_UNSUPPORTED_FIELD_UPDATE_NON_STRUCT",
                )
        result[name] = Target(path, type_at(schema, path))
    fixed = {c.name for c in identity_columns(schema)}
    spellings: dict[tuple[str, ...], str] = {}
    for name, target in result.items():
        if target.path[0] in fixed:
            raise InvalidArgumentError(
                f"{target.name} is an identity column, whose values cannot be updated",
                column=target.name,
                file=uri,
                condition="DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED",
            )
        for other, spelling in spellings.items():
            shorter = min(len(other), len(target.path))
            if other[:shorter] == target.path[:shorter]:
                raise InvalidArgumentError(
                    f"there is a conflict from these SET columns: {spelling} and {name}",
                    help="assign each column once, either as a whole or by its fields",
                    column=name,
                    file=uri,
                    condition="DELTA_CONFLICT_SET_COLUMN",
                )
        spellings[target.path] = name
    return result


def assigned_once(values: Iterable[tuple[tuple[str, ...], Value]]) -> dict[str, Value]:
    """The values by column path.

    Raises ``InvalidArgumentError`` for a column that is assigned twice: one value would be lost without notice.
    """
    out: dict[str, Value] = {}
    for column, value in values:
        name = format_path(column)
        if name in out:
            raise InvalidArgumentError(
                f"there is a conflict from these SET columns: {name} and {name}",
                help="assign each column once",
                column=name,
                condition="DELTA_CONFLICT_SET_COLUMN",
            )
        out[name] = value
    return out


def given_columns(schema: StructType, assigned: Mapping[str, Target]) -> StructType:
    """The columns of rows that are written back to the table, without generated columns to recompute."""
    names = {t.path[0] for t in assigned.values()}
    fields = tuple(f for f in read_schema(schema).fields if f.name in names or generation_expression(f) is None)
    return StructType(fields)


@dataclass(frozen=True)
class Assignments:
    """New values of some columns of a table; picklable."""

    schema: StructType
    targets: tuple[Target, ...] = ()
    #: For each target, an expression, or one value for all rows.
    values: tuple[Expression | pa.Scalar, ...] = ()

    @classmethod
    def of(cls, set: Mapping[str, Any], schema: StructType, *, now: dt.datetime, uri: str) -> Assignments:
        """Bind strings and literals to a table's columns.

        Raises the errors of :func:`targets`, ``ExpressionError`` for an expression that is invalid or cannot be stored
        in its column, ``UnsupportedExpressionError`` for one that only Spark can evaluate, ``SchemaMismatchError`` for
        a literal that does not fit.
        """
        by_name = targets(set, schema, uri=uri)
        arrow = filter_schema(read_schema(schema))
        values = [_bound(set[name], target, arrow, now) for name, target in by_name.items()]
        for target, value in zip(by_name.values(), values, strict=True):
            if not isinstance(value, Expression) or not is_spatial(str(target.type)):
                continue
            # Coordinates of another spatial type would mean another place.
            for field in filter(None, map(schema.find, sorted(value.columns))):
                if is_spatial(str(field.type)) and field.type != target.type:
                    raise SchemaMismatchError(
                        f"column {target.name} has type {target.type}, but its new value uses column {field.name} of"
                        f" type {field.type}",
                        help="transform the coordinates, and write the results as values",
                        column=target.name,
                    )
        return cls(schema, tuple(by_name.values()), tuple(values))

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        expressions = [v for v in self.values if isinstance(v, Expression)]
        computed = iter(evaluate_all(expressions, rows)) if expressions else iter(())
        new: dict[tuple[str, ...], pa.Array] = {}
        for target, value in zip(self.targets, self.values, strict=True):
            if isinstance(value, Expression):
                array = next(computed).combine_chunks()
            else:
                array = pa.repeat(value, rows.num_rows) if value.is_valid else nulls(rows.num_rows, value.type)
            new[target.path] = assign_array(array, target.type, target.name)
        columns = [
            _with(column, (name,), self.schema.find(name), new)
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _with(column: pa.Array, path: tuple[str, ...], field: Any, new: Mapping[tuple[str, ...], pa.Array]) -> pa.Array:
    if path in new:
        return new[path]
    if not any(p[: len(path)] == path for p in new):
        return column
    # If the struct is null, assigning a field makes it non-null, with all other fields null.
    children = [
        _with(pc.struct_field(column, i), (*path, f.name), f, new)  # null if the struct is
        for i, f in enumerate(field.type.fields)
    ]
    fields = [pa.field(f.name, child.type) for f, child in zip(field.type.fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields)


def _bound(value: Any, target: Target, arrow: pa.Schema, now: dt.datetime) -> Expression | pa.Scalar:
    if not isinstance(value, str):
        return _literal(value, target)
    try:
        expression = parse_expression(value, arrow, now=now)
    except ExpressionError as e:
        raise type(e)(e.message, help=e.help, **{"column": target.name, **e.context}) from e
    type_ = target.type.arrow
    if pa.types.is_nested(type_) and pa.types.is_nested(expression.type):
        check_fields(expression.type, target.type, target.name)
        return expression  # assigned by name, field by field
    return stored(expression, value, target.type, partial(parse_expression, schema=arrow, now=now))


def stored(expression: Expression, sql: str, type_: DataType, parse: Callable[..., Expression]) -> Expression:
    """The expression cast to a column's type.  Raises ``ExpressionError`` if the column cannot store its values.

    ``parse`` parses SQL in the scope of ``expression``, which is ``sql``.
    """
    try:
        return expression.cast(type_.arrow)
    except ExpressionError:
        if not pa.types.is_string(expression.type) or pa.types.is_nested(type_.arrow):
            raise
        # As in Spark, a string is parsed as a value of the column's type.
        return parse(f"CAST(({sql}\n) AS {sql_type(type_)})", written=sql)


def _literal(value: Any, target: Target) -> pa.Scalar:
    if getattr(value, "nanosecond", 0) > 0:  # a pandas time, which Arrow would truncate to microseconds
        value = pa.scalar(value.value, pa.timestamp("ns"))
    elif type(value).__name__ == "datetime64":
        value = pa.array([value])[0]
    if isinstance(value, pa.Scalar):
        check_fields(value.type, target.type, target.name, fill=True)
        return assign_array(pa.array([value.as_py()], value.type), target.type, target.name)[0]
    value = _spelled(value, target.type, target.name)
    try:
        return pa.array([value], target.type.arrow)[0]
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as e:
        raise SchemaMismatchError(
            f"{describe_row({target.name: value})} is not a value of type {target.type}: {e}",
            help="strings are SQL expressions: quote literals, as in \"'a string'\"",
            column=target.name,
        ) from e


def _spelled(value: Any, type_: DataType, path: str) -> Any:
    """The value with the type's spelling of struct fields in its dicts, since Arrow drops unknown fields.

    Missing fields are null.  Raises ``SchemaMismatchError`` for a dict with other fields.
    """
    match type_:
        case StructType() if isinstance(value, Mapping):
            check_fields(pa.struct([(str(name), pa.null()) for name in value]), type_, path, fill=True)
            by_lower = {str(name).lower(): v for name, v in value.items()}
            return {f.name: _spelled(by_lower.get(f.name.lower()), f.type, f"{path}.{f.name}") for f in type_.fields}
        case ArrayType() if isinstance(value, list | tuple):
            return [_spelled(v, type_.element, f"{path}.element") for v in value]
        case MapType() if isinstance(value, Mapping | list | tuple):
            pairs = value.items() if isinstance(value, Mapping) else value
            if all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
                key, item = f"{path}.key", f"{path}.value"
                return [(_spelled(k, type_.key, key), _spelled(v, type_.value, item)) for k, v in pairs]
    return value
