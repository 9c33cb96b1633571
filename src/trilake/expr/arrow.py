"""Evaluate pyarrow expressions with Arrow, and decode them into predicate trees for data skipping.

Arrow has no interface to inspect an expression, but serializes it for pickling.  This module parses that form and
rebuilds the expression; the result is only used if Arrow finds both equal.  So a misread or changed form only costs
data skipping.

Arrow compares by IEEE rules, while in Spark NaN equals itself and is the largest value; leaves are marked as ``ieee``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import columns_help
from trilake.errors import FilterError
from trilake.expr.terms import bind
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.bind import Column, without_chars
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.evaluate import KERNELS
from trilake.expr.terms.literals import Kind, Literal
from trilake.expr.terms.predicate import (
    MIRRORED,
    Compare,
    Conjunct,
    Constant,
    In,
    IsNull,
    Known,
    Not,
    Predicate,
    Undecoded,
    all_of,
    any_of,
)


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """Evaluate ``expression`` for each row, in the order of the rows.

    Raises :class:`FilterError` if Arrow cannot compute it, or if it is not boolean.
    """
    from pyarrow import acero  # late: imports pyarrow.dataset

    try:
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
                acero.Declaration("project", acero.ProjectNodeOptions([expression], ["m"])),
            ]
        )
        result = plan.to_table(use_threads=False)["m"]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError) as error:
        message = str(error).splitlines()[0]
        missing = re.match(r"No match for FieldRef\.Name\((.*?)\) in ", message)
        raise FilterError(
            f"column {missing[1]!r} not found in the table"
            if missing
            else f"Arrow cannot evaluate the filter: {message}",
            help=columns_help(missing[1] if missing else "", table.schema.names)
            + "; names in pyarrow expressions are case-sensitive",
            filter=str(expression),
        ) from error
    if not pa.types.is_boolean(result.type) and not pa.types.is_null(result.type):
        raise FilterError(
            f"a filter must be boolean, got {result.type}", help="add a comparison", filter=str(expression)
        )
    return result.cast(pa.bool_())


def decode(expression: pc.Expression, schema: pa.Schema) -> tuple[Conjunct, ...]:
    """The conjuncts of an expression over ``schema``.

    Raises :class:`FilterError` for unknown columns, columns by number, and expressions that are not boolean.
    """
    sql = str(expression)
    if "FieldPath(" in sql:
        raise FilterError("the filter refers to columns by position", help="name them: pc.field('name')", filter=sql)
    evaluate(expression, _no_rows(schema))
    root = _read(expression)
    if root is None:
        return (Conjunct(sql, Undecoded(sql, _columns_of(expression, schema))),)
    decoder = _Decoder(without_chars(schema))  # Arrow compares storage values by its own rules
    return tuple(Conjunct(str(part.expression), decoder.predicate(part)) for part in _conjuncts(root))


def _no_rows(schema: pa.Schema) -> pa.Table:
    # pyarrow 26.0 has no empty arrays of extension types in structs and lists, but arrays of nulls.
    return pa.table([pa.nulls(0, f.type) for f in schema], schema=schema)


def _columns_of(expression: pc.Expression, schema: pa.Schema) -> tuple[Path, ...]:
    """The columns that Arrow needs for an expression that was not decoded."""
    mentioned = [f.name for f in schema if f.name in str(expression)]
    read_schema = pa.schema([schema.field(name) for name in dict.fromkeys(mentioned)])
    try:
        evaluate(expression, _no_rows(read_schema))
    except FilterError:
        return tuple((name,) for name in schema.names)
    return tuple((name,) for name in read_schema.names)


# --- parsing Arrow's serialized form ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """A call, field or literal of an expression, with the rebuilt expression."""

    expression: pc.Expression
    call: str | None = None
    args: tuple[_Node, ...] = ()
    options: dict[str, Any] | None = None
    path: Path = ()
    literal: pa.Scalar | None = None


_LINE = re.compile(r"(call|end|field_ref|nested_field_ref|literal|options): '(.*)'")


def _read(expression: pc.Expression) -> _Node | None:
    """The tree of an expression; ``None`` if it cannot be parsed reliably."""
    try:
        _, (buffer,) = expression.__reduce__()
        with pa.ipc.open_file(buffer) as file:
            batch = file.get_batch(0)
        # Schema.metadata is a dictionary, but keys repeat.
        dump = file.schema.to_string(truncate_metadata=False, show_field_metadata=False)
        lines = [_LINE.fullmatch(line) for line in dump.split("-- schema metadata --\n")[-1].splitlines()]
        steps = [(m[1], m[2]) for m in lines if m is not None]
        if len(steps) != len(lines):
            return None
        root, rest = _node(steps, 0, batch)
        return root if rest == len(steps) and root.expression.equals(expression) else None
    except (pa.ArrowException, AttributeError, ValueError, TypeError, LookupError, RecursionError):
        # An unknown form, function or option.
        return None


def _node(steps: list[tuple[str, str]], i: int, batch: pa.RecordBatch) -> tuple[_Node, int]:
    kind, value = steps[i]
    if kind == "field_ref":
        return _Node(pc.field(value), path=(value,)), i + 1
    if kind == "nested_field_ref":
        parts = steps[i + 1 : i + 1 + int(value)]
        if any(k != "field_ref" for k, _ in parts):
            raise ValueError("a nested field without names")
        path = tuple(v for _, v in parts)
        return _Node(pc.field(*path), path=path), i + 1 + len(path)
    if kind == "literal":
        scalar = batch.column(int(value))[0]
        return _Node(pc.scalar(scalar), literal=scalar), i + 1
    if kind != "call":
        raise ValueError(f"an unexpected {kind}")
    args: list[_Node] = []
    options = None
    i += 1
    while steps[i][0] != "end":
        if steps[i][0] == "options":
            stated = batch.column(int(steps[i][1]))[0]
            options = {name: stated[name] for name in stated.type.names}
            i += 1
            continue
        arg, i = _node(steps, i, batch)
        args.append(arg)
    if steps[i][1] != value:
        raise ValueError(f"the end of {value} does not match its start")
    built = _build(value, [a.expression for a in args], options)
    return _Node(built, call=value, args=tuple(args), options=options), i + 1


_NULL_MATCHING = {0: False, 1: True}  # MATCH and SKIP: Python can create no others


def _build(name: str, args: list[pc.Expression], options: dict[str, Any] | None) -> pc.Expression:
    if options is None:
        function: Callable[..., pc.Expression] = getattr(pc, name)
        return function(*args)
    match name:
        case "is_in":
            skip_nulls = _NULL_MATCHING[options["null_matching_behavior"].as_py()]
            return pc.is_in(*args, value_set=options["value_set"].values, skip_nulls=skip_nulls)
        case "is_null":
            return args[0].is_null(nan_is_null=options["nan_is_null"].as_py())
        case "starts_with" | "ends_with" | "match_substring" | "match_like" | "match_substring_regex":
            pattern, ignore_case = options["pattern"].as_py(), options["ignore_case"].as_py()
            built: pc.Expression = getattr(pc, name)(*args, pattern, ignore_case=ignore_case)
            return built
        case "cast":
            flags = {key: value.as_py() for key, value in options.items() if key.startswith("allow_")}
            return args[0].cast(options=pc.CastOptions(target_type=options["to_type"].type, **flags))
    raise ValueError(f"options of {name}")


def _conjuncts(node: _Node) -> list[_Node]:
    if node.call in ("and_kleene", "and"):
        return [leaf for arg in node.args for leaf in _conjuncts(arg)]
    return [node]


_COMPARISONS = {kernel.__name__: op for op, kernel in KERNELS.items()}


class _Decoder:
    """Convert nodes to predicates; unsupported nodes stay undecoded."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def predicate(self, node: _Node) -> Predicate:
        match node.call:
            case "and_kleene":
                return all_of([self.predicate(arg) for arg in node.args])
            case "or_kleene":
                return any_of([self.predicate(arg) for arg in node.args])
            case "invert":
                return Not(self.predicate(node.args[0]))
            case None if node.literal is not None and pa.types.is_boolean(node.literal.type):
                return Constant(node.literal.as_py())
        return self._leaf(node) or Undecoded(str(node.expression), tuple(_paths(node)))

    def _leaf(self, node: _Node) -> Predicate | None:
        column = self._column(node if node.call is None else node.args[0] if node.args else None)
        match node.call:
            case None if column is not None and pa.types.is_boolean(column.type):
                return bind.compare(column, "=", Literal(True, Kind.BOOLEAN))
            case "is_null" if column is not None and node.options is not None:
                nan_is_null = node.options["nan_is_null"].as_py() and types.is_float(column.type)
                return None if nan_is_null else IsNull(column.path)
            case "is_valid" if column is not None:
                return Not(IsNull(column.path))
            case "is_nan" if column is not None and types.is_float(column.type):
                return Compare(column.path, "=", pa.scalar(float("nan"), column.type))
            case "is_in" if column is not None and node.options is not None:
                return self._is_in(column, node.options)
            case "starts_with" if column is not None and node.options is not None:
                prefix = Literal.of(node.options["pattern"].as_py())
                if types.is_string(column.type) and not node.options["ignore_case"].as_py():
                    return bind.starts_with(column, prefix)
            case call if call in _COMPARISONS and len(node.args) == 2:
                op = _COMPARISONS[call]
                if column is not None:
                    return self._compare(column, op, node.args[1].literal)
                column = self._column(node.args[1])
                if column is not None:
                    return self._compare(column, MIRRORED[op], node.args[0].literal)
        return None

    def _column(self, node: _Node | None) -> Column | None:
        if node is None or not node.path:
            return None
        column, rest = bind.resolve(node.path, self.schema, case_sensitive=True)
        field: Any = self.schema
        for name in column.path:
            field = field.field(name) if isinstance(field, pa.Schema) else field.type.field(name)
        # Normal form rounds nanoseconds to microseconds, but Arrow compares them exactly.
        nanos = pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        return None if rest or nanos else column

    def _compare(self, column: Column, op: str, scalar: pa.Scalar | None) -> Predicate | None:
        if scalar is None or not scalar.is_valid:
            return None  # null for every row, but Arrow still reads the column
        literal = _literal(scalar)
        if literal is None or not _same_kind(column.type, literal):
            return None
        predicate = bind.compare(column, op, literal)
        if isinstance(predicate, Compare):
            return replace(predicate, ieee=True)
        # Beyond the range of a floating point column NaN still compares as false.
        return predicate if isinstance(predicate, Known) and not types.is_float(column.type) else None

    def _is_in(self, column: Column, options: dict[str, Any]) -> Predicate | None:
        values = options["value_set"].values
        literals = [_literal(v) for v in values if v.is_valid]
        comparable = [v for v in literals if v is not None and _same_kind(column.type, v)]
        if len(comparable) != len(literals) or types.is_float(column.type):
            return None  # here, unlike in comparisons, Arrow distinguishes -0.0 from 0.0
        valid = Not(IsNull(column.path))
        member = bind.is_in(column, comparable)
        if not isinstance(member, In | Known):
            member = Constant(False) if not comparable else member
        # The result is never null: a null row only matches a null among the values.
        matches_null = not options["null_matching_behavior"].as_py() and values.null_count > 0
        inside = all_of([valid, member])
        return any_of([IsNull(column.path), inside]) if matches_null else inside


def _paths(node: _Node) -> list[Path]:
    paths = [node.path] if node.path else []
    return list(dict.fromkeys(paths + [path for arg in node.args for path in _paths(arg)]))


def _literal(scalar: pa.Scalar) -> Literal | None:
    t = types.normal_type(scalar.type)
    try:
        if pa.types.is_timestamp(t):
            if scalar.type.unit == "ns":
                return None
            kind = Kind.TIMESTAMP if t.tz else Kind.TIMESTAMP_NTZ
            return Literal(scalar.cast(t).cast(pa.int64()).as_py(), kind)
        if pa.types.is_date32(t):
            return Literal(scalar.cast(t).cast(pa.int32()).as_py(), Kind.DATE)
        return Literal.of(scalar.as_py()) if types.is_ordered(t) else None
    except (pa.ArrowException, FilterError):
        return None


def _same_kind(t: pa.DataType, literal: Literal) -> bool:
    """Whether Arrow compares a column with a literal exactly, as leaves do."""
    if literal.kind is Kind.INTEGER and types.is_float(t):
        assert isinstance(literal.value, int)
        return abs(literal.value) <= (1 << (24 if pa.types.is_float32(t) else 53))
    return literal.kind in _EXACT and bool(_EXACT[literal.kind](t))


_EXACT: dict[Kind, Callable[[pa.DataType], object]] = {
    Kind.BOOLEAN: pa.types.is_boolean,
    Kind.INTEGER: lambda t: pa.types.is_integer(t) or pa.types.is_decimal(t),
    Kind.DOUBLE: types.is_float,
    Kind.DECIMAL: pa.types.is_decimal,
    Kind.STRING: types.is_string,
    Kind.BINARY: types.is_bytes,
    Kind.DATE: pa.types.is_date32,
    Kind.TIMESTAMP: lambda t: t == types.TIMESTAMP,
    Kind.TIMESTAMP_NTZ: lambda t: t == types.TIMESTAMP_NTZ,
}
