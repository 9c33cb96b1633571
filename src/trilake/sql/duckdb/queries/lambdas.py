"""Functions that call another one for each element of an array or map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.sql.dialect import spark_text
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.nested_order import parts_of


class Translating(Protocol):
    """What translates the bodies of lambdas."""

    def render(self, node: exp.Expression) -> Sql:
        """Any expression."""

    def boolean(self, node: exp.Expression) -> Sql:
        """A condition."""

    def parameters(self, names: Sequence[str], types: Sequence[str]) -> AbstractContextManager[list[str]]:
        """Parameters for the time of the block; their names in DuckDB."""


Handler = Callable[[Translating, list[exp.Expression]], Sql]


def _split(name: str, node: exp.Expression, least: int, most: int) -> tuple[list[str], exp.Expression]:
    if not isinstance(node, exp.Lambda) or not least <= len(node.expressions) <= most:
        raise FilterError(f"{name} needs a function such as x -> x + 1, not {spark_text(node)}")
    return [p.name for p in node.expressions], node.this


def _check_count(name: str, nodes: list[exp.Expression], count: int) -> None:
    if len(nodes) != count:
        raise FilterError(f"{name} takes {count} arguments, not {len(nodes)}")


def _array(t: Translating, name: str, node: exp.Expression) -> tuple[Sql, str]:
    """An array and the type of its elements."""
    array = t.render(node)
    if array.family != "array":
        raise FilterError(f"{name} of a value of type {array.spark_type}, not of an array")
    return array, parts_of(array.type)[0]


def _mapped(t: Translating, name: str, nodes: list[exp.Expression], *, condition: bool = True) -> tuple[Sql, str, Sql]:
    """An array, and a lambda over its elements and perhaps their numbers from 0 on: its parameters and its body."""
    _check_count(name, nodes, 2)
    array, kind = _array(t, name, nodes[0])
    names, body = _split(name, nodes[1], 1, 2)
    with t.parameters(names, [kind, "INTEGER"][: len(names)]) as idents:
        found = t.boolean(body) if condition else t.render(body)
    text = found.text
    if len(idents) > 1:  # DuckDB counts from 1
        text = text.replace(idents[1], f"CAST({idents[1]} - 1 AS INTEGER)")
    return array, ", ".join(idents), Sql(text, found.type)


def _transform(t: Translating, nodes: list[exp.Expression]) -> Sql:
    array, names, body = _mapped(t, "transform", nodes, condition=False)
    result = "INTEGER" if body.family == "void" else body.type
    return Sql(f"list_transform({array.text}, lambda {names}: {body.text})", f"{result}[]")


def _filter(t: Translating, nodes: list[exp.Expression]) -> Sql:
    array, names, body = _mapped(t, "filter", nodes)
    return Sql(f"list_filter({array.text}, lambda {names}: coalesce({body.text}, FALSE))", array.type)


def _quantified(name: str, decisive: str) -> Handler:
    """``exists`` and ``forall``: an element decides; where none does, one of which nothing is known leaves it open."""

    def handle(t: Translating, nodes: list[exp.Expression]) -> Sql:
        array, names, body = _mapped(t, name, nodes)

        def some(condition: str) -> str:
            return f"len(list_filter({array.text}, lambda {names}: {condition})) > 0"

        decided = some(f"coalesce({body.text if decisive == 'TRUE' else f'NOT {body.text}'}, FALSE)")
        other = "FALSE" if decisive == "TRUE" else "TRUE"
        return Sql(
            f"(CASE WHEN {array.text} IS NULL THEN NULL WHEN {decided} THEN {decisive} "
            f"WHEN {some(f'{body.text} IS NULL')} THEN NULL ELSE {other} END)",
            "BOOLEAN",
        )

    return handle


def _aggregate(t: Translating, nodes: list[exp.Expression]) -> Sql:
    if len(nodes) not in (3, 4):
        raise FilterError(f"aggregate takes 3 or 4 arguments, not {len(nodes)}")
    array, kind = _array(t, "aggregate", nodes[0])
    start = t.render(nodes[1])
    names, body = _split("aggregate", nodes[2], 2, 2)
    with t.parameters(names, [start.type, kind]) as idents:
        step = cast(t.render(body), start.type)
    reduced = f"list_reduce({array.text}, lambda {', '.join(idents)}: {step.text}, {start.text})"
    if len(nodes) == 3:
        return Sql(reduced, start.type)
    names, body = _split("aggregate", nodes[3], 1, 1)
    with t.parameters(names, [start.type]) as idents:
        last = t.render(body)
    return Sql(f"list_transform([{reduced}], lambda {idents[0]}: {last.text})[1]", last.type)


def _zip_with(t: Translating, nodes: list[exp.Expression]) -> Sql:
    _check_count("zip_with", nodes, 3)
    (left, a), (right, b) = (_array(t, "zip_with", n) for n in nodes[:2])
    names, body = _split("zip_with", nodes[2], 2, 2)
    with t.parameters(names, [a, b]) as idents:
        found = t.render(body)
    pair = 'lambda "z#0": '
    text = found.text.replace(idents[0], f'{left.text}["z#0"]').replace(idents[1], f'{right.text}["z#0"]')
    places = f"range(1, greatest(len({left.text}), len({right.text})) + 1)"
    zipped = f"list_transform({places}, {pair}{text})"
    return Sql(f"(CASE WHEN {left.text} IS NOT NULL AND {right.text} IS NOT NULL THEN {zipped} END)", f"{found.type}[]")


def _of_entries(t: Translating, name: str, nodes: list[exp.Expression], *, condition: bool) -> tuple[Sql, Sql]:
    """A map, and the body of a function of its keys and values as one of its entries."""
    _check_count(name, nodes, 2)
    value = t.render(nodes[0])
    if value.family != "map":
        raise FilterError(f"{name} of a value of type {value.spark_type}, not of a map")
    names, body = _split(name, nodes[1], 2, 2)
    with t.parameters(names, parts_of(value.type)) as idents:
        found = t.boolean(body) if condition else t.render(body)
    text = found.text
    for ident, field in zip(idents, ("key", "value"), strict=True):
        text = text.replace(ident, f"struct_extract(\"e#0\", '{field}')")
    return value, Sql(text, found.type)


def _map_filter(t: Translating, nodes: list[exp.Expression]) -> Sql:
    value, body = _of_entries(t, "map_filter", nodes, condition=True)
    kept = f'list_filter(map_entries({value.text}), lambda "e#0": coalesce({body.text}, FALSE))'
    return Sql(f"map_from_entries({kept})", value.type)


def _transform_values(t: Translating, nodes: list[exp.Expression]) -> Sql:
    value, body = _of_entries(t, "transform_values", nodes, condition=False)
    key = parts_of(value.type)[0]
    values = f'list_transform(map_entries({value.text}), lambda "e#0": {body.text})'
    return Sql(f"map(map_keys({value.text}), {values})", f"MAP({key}, {body.type})")


#: By lower-case name.
LAMBDAS: Mapping[str, Handler] = {
    "transform": _transform,
    "filter": _filter,
    "exists": _quantified("exists", "TRUE"),
    "forall": _quantified("forall", "FALSE"),
    **dict.fromkeys(("aggregate", "reduce"), _aggregate),
    "zip_with": _zip_with,
    "map_filter": _map_filter,
    "transform_values": _transform_values,
}
