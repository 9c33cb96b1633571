"""Functions of arrays, maps and structs, as DuckDB's of the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trilake.common.text import double_quoted
from trilake.errors import FilterError
from trilake.expr.sql.calls import Call
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql, at_least, common_type, fail
from trilake.expr.terms.nested_order import order_key, parts_of

Handler = Callable[[Call], Sql]
#: Elements that a call may make from nothing.
_MOST = 1_000_000


def _array_of(call: Call, index: int = 0) -> tuple[str, str]:
    """An array argument, and the type of its elements."""
    text = call.family(index, "array")
    if call.args[index].family == "void":
        raise FilterError(f"argument {index + 1} of {call.name} is null")
    return text, parts_of(call.args[index].type)[0]


def _element(call: Call, index: int, kind: str) -> str:
    """An argument as an element of an array of ``kind``."""
    value = call.args[index]
    if value.family == "void":
        return f"CAST(NULL AS {kind})"
    if common_type([value, Sql("", kind)], f"the arguments of {call.name}") != kind:
        raise FilterError(f"argument {index + 1} of {call.name} is of type {value.spark_type}", help="cast it")
    return cast(value, kind).text


def _distinct(array: str) -> str:
    """An array of which only the first of equal elements stays, and one null."""
    return f'list_filter({array}, lambda "e#0", "i#0": list_position({array}, "e#0") = "i#0")'


def joined(texts: str, separator: str) -> str:
    """The texts of an array that are not null, with a separator between two of them."""
    if '"' not in separator:
        return f"array_to_string({texts}, {separator})"  # which takes constants only
    there = f'list_filter({texts}, lambda "j#0": "j#0" IS NOT NULL)'
    pairs = f'list_reduce({there}, lambda "j#0", "k#0": "j#0" || {separator} || "k#0")'
    return f"(CASE WHEN len({there}) > 0 THEN {pairs} ELSE '' END)"


# --- making arrays, maps and structs ----------------------------------------------------------------------------------


def _array(call: Call) -> Sql:
    if not call.args:
        raise FilterError("an empty array has no type here", help="cast it: CAST(array() AS ARRAY<INT>)")
    parts = call.unified()
    kind = next((p.type for p in parts if p.family != "void"), "INTEGER")
    return Sql(f"[{', '.join(p.text for p in parts)}]", f"{kind}[]")


def _map(call: Call) -> Sql:
    if not call.args or len(call.args) % 2:
        raise FilterError("map takes pairs of keys and values")
    sides = []
    for side in (call.args[::2], call.args[1::2]):
        target = common_type(side, "the arguments of map")
        target = "INTEGER" if target == '"NULL"' else target
        sides.append(([cast(s, target).text for s in side], target))
    (keys, key), (values, value) = sides
    return Sql(f"map([{', '.join(keys)}], [{', '.join(values)}])", f"MAP({key}, {value})")


def _named(names: list[str], values: tuple[Sql, ...]) -> Sql:
    if len({n.lower() for n in names}) < len(names):
        raise FilterError("a struct has two fields of one name")
    kinds = ["INTEGER" if v.family == "void" else v.type for v in values]
    shown = list(map(double_quoted, names))
    fields = ", ".join(f"{n} := {v.text}" for n, v in zip(shown, values, strict=True))
    return Sql(f"struct_pack({fields})", f"STRUCT({', '.join(f'{n} {k}' for n, k in zip(shown, kinds, strict=True))})")


def _struct(call: Call) -> Sql:
    names = []
    for number, node in enumerate(call.nodes, 1):
        name = node.alias_or_name if type(node).__name__ in ("Alias", "Column", "Dot", "Identifier") else ""
        names.append(name or f"col{number}")
    return _named(names, call.args)


def _named_struct(call: Call) -> Sql:
    if len(call.args) % 2:
        raise FilterError("named_struct takes pairs of names and values")
    return _named([str(call.constant(i)) for i in range(0, len(call.args), 2)], call.args[1::2])


# --- arrays and maps --------------------------------------------------------------------------------------------------


def _simple_array(template: str, result: str | None = None) -> Handler:
    """A function of one array; ``result`` is its type, or that of the array."""

    def handle(call: Call) -> Sql:
        text, _ = _array_of(call)
        return Sql(template.format(text), result or call.args[0].type)

    return handle


def _array_extreme(name: str) -> Handler:
    def handle(call: Call) -> Sql:
        text, kind = _array_of(call)
        if order_key(Sql(text, kind)) == text:
            return Sql(f"{name}({text})", kind)
        present = f'list_filter({text}, lambda "e#0": "e#0" IS NOT NULL)'
        return Sql(f"{_sorted(present, kind, rising=name == 'list_min')}[1]", kind)

    return handle


def _sorted(array: str, kind: str, *, rising: bool) -> str:
    """An array of elements of ``kind`` in Spark's order, in which nulls are the least."""
    order = "'ASC', 'NULLS FIRST'" if rising else "'DESC', 'NULLS LAST'"
    element = Sql('"s#0"', kind)
    key = order_key(element)
    if key == element.text:
        return f"list_sort({array}, {order})"
    # A struct is ordered by its first field: no two keys are alike but those of elements that are.
    pairs = f"list_transform({array}, lambda {element.text}: struct_pack(there := {element.text} IS NOT NULL, "
    pairs += f"key := {key}, element := {element.text}))"
    return f'list_transform(list_sort({pairs}, {order}), lambda "p#0": struct_extract("p#0", \'element\'))'


def _sort_array(call: Call) -> Sql:
    text, kind = _array_of(call)
    rising = True
    if len(call.args) > 1:
        if call.args[1].text not in ("TRUE", "FALSE"):
            raise FilterError("argument 2 of sort_array must be a constant")
        rising = call.args[1].text == "TRUE"
    return Sql(_sorted(text, kind, rising=rising), call.args[0].type)


def _array_position(call: Call) -> Sql:
    text, kind = _array_of(call)
    item = _element(call, 1, kind)
    found = f"coalesce(list_position({text}, {item}), 0)"
    return Sql(f"(CASE WHEN {text} IS NULL OR {item} IS NULL THEN NULL ELSE CAST({found} AS BIGINT) END)", "BIGINT")


def _array_remove(call: Call) -> Sql:
    text, kind = _array_of(call)
    item = _element(call, 1, kind)
    kept = f'list_filter({text}, lambda "e#0": "e#0" IS NULL OR "e#0" <> {item})'
    return Sql(f"(CASE WHEN {item} IS NULL THEN NULL ELSE {kept} END)", call.args[0].type)


def _slice(call: Call) -> Sql:
    text, _ = _array_of(call)
    start, length = call.integer(1), call.integer(2)
    begin = f"(CASE WHEN {start} > 0 THEN {start} ELSE len({text}) + {start} + 1 END)"
    wrong = f"(CASE WHEN {start} = 0 THEN {fail('slice begins at 0')} ELSE {fail('slice has a negative length')} END)"
    end = f"(CASE WHEN {begin} < 1 THEN 0 ELSE {begin} + {length} - 1 END)"
    taken = f"list_slice({text}, greatest({begin}, 1), {end})"
    return Sql(f"(CASE WHEN {start} = 0 OR {length} < 0 THEN {wrong} ELSE {taken} END)", call.args[0].type)


def _array_join(call: Call) -> Sql:
    text, kind = _array_of(call)
    if kind != "VARCHAR":
        raise FilterError(f"{call.name} joins texts only")
    texts = [call.string(i) for i in range(1, len(call.args))]
    missing = " OR ".join(f"{t} IS NULL" for t in (text, *texts))
    if len(texts) > 1:
        text = f'list_transform({text}, lambda "e#0": coalesce("e#0", {texts[1]}))'
    return Sql(f"(CASE WHEN {missing} THEN NULL ELSE coalesce({joined(text, texts[0])}, '') END)", "VARCHAR")


def _flatten(call: Call) -> Sql:
    text, kind = _array_of(call)
    if not kind.endswith("]"):
        raise FilterError(f"flatten of an array of {Sql('', kind).spark_type}")
    unknown = f'len(list_filter({text}, lambda "e#0": "e#0" IS NULL)) > 0'
    return Sql(f"(CASE WHEN {unknown} THEN NULL ELSE flatten({text}) END)", kind)


def _only(array: str, other: str, test: str) -> str:
    """The distinct elements of an array that are, or are not, in another one."""
    return (
        f"(CASE WHEN {other} IS NOT NULL THEN "
        f'list_filter({_distinct(array)}, lambda "o#0": list_position({other}, "o#0") {test}) END)'
    )


def _reverse(call: Call) -> Sql:
    if call.args[0].family == "array":
        return Sql(f"list_reverse({call.args[0].text})", call.args[0].type)
    return Sql(f"reverse({call.string(0)})", "VARCHAR")


def _both_arrays(call: Call) -> tuple[str, str]:
    """The two arrays of a call.  Raises ``FilterError`` for unlike ones."""
    (left, kind), (right, other) = _array_of(call), _array_of(call, 1)
    if kind != other:
        raise FilterError(f"{call.name} of arrays of unlike types", help="cast one of them")
    return left, right


def _two_arrays(template: Callable[[str, str], str]) -> Handler:
    def handle(call: Call) -> Sql:
        left, right = _both_arrays(call)
        return Sql(f"(CASE WHEN {right} IS NOT NULL THEN {template(left, right)} END)", call.args[0].type)

    return handle


def _overlap(call: Call) -> Sql:
    left, right = _both_arrays(call)
    nulls = " OR ".join(f"list_count({side}) < len({side})" for side in (left, right))
    nulls = f"({nulls}) AND len({left}) > 0 AND len({right}) > 0"
    return Sql(
        f"(CASE WHEN {left} IS NULL OR {right} IS NULL THEN NULL WHEN list_has_any({left}, {right}) THEN TRUE "
        f"WHEN {nulls} THEN NULL ELSE FALSE END)",
        "BOOLEAN",
    )


def _array_repeat(call: Call) -> Sql:
    value, count = call.args[0], call.integer(1)
    kind = "INTEGER" if value.family == "void" else value.type
    refuse = fail(f"array_repeat is limited to {_MOST}")
    guarded = f"(CASE WHEN {count} > {_MOST} THEN {refuse} ELSE {at_least(count, 0)} END)"
    return Sql(f'list_transform(range({guarded}), lambda "e#0": CAST({value.text} AS {kind}))', f"{kind}[]")


def _sequence(call: Call) -> Sql:
    if any(a.family != "integer" for a in call.args):
        raise FilterError("sequence is known here for integers only")
    kind = common_type(call.args, "the arguments of sequence")
    first, last = (cast(a, "BIGINT").text for a in call.args[:2])
    step = (
        cast(call.args[2], "BIGINT").text if len(call.args) > 2 else f"(CASE WHEN {first} <= {last} THEN 1 ELSE -1 END)"
    )
    wrong = (
        f"({step} = 0 AND {first} <> {last}) OR ({step} > 0 AND {first} > {last}) OR ({step} < 0 AND {first} < {last})"
    )
    long = f"{step} <> 0 AND ({last} - {first}) // {step} >= {_MOST}"
    made = f"(CASE WHEN {step} = 0 THEN [{first}] ELSE generate_series({first}, {last}, {step}) END)"
    return Sql(
        f"CAST((CASE WHEN {wrong} THEN {fail('the step of sequence leads away from its end')} "
        f"WHEN {long} THEN {fail(f'sequence is limited to {_MOST} elements')} ELSE {made} END) AS {kind}[])",
        f"{kind}[]",
    )


def _map_part(name: str, index: int) -> Handler:
    def handle(call: Call) -> Sql:
        text = call.family(0, "map")
        return Sql(f"{name}({text})", f"{parts_of(call.args[0].type)[index]}[]")

    return handle


def _map_entries(call: Call) -> Sql:
    key, value = parts_of(call.args[0].type) if call.family(0, "map") else ("", "")
    return Sql(f"map_entries({call.args[0].text})", f'STRUCT("key" {key}, "value" {value})[]')


def _map_from_arrays(call: Call) -> Sql:
    (keys, key), (values, value) = _array_of(call), _array_of(call, 1)
    return Sql(f"map({keys}, {values})", f"MAP({key}, {value})")


#: By lower-case name: the least and the greatest number of arguments, and the translation.
ARRAY_FUNCTIONS: Mapping[str, tuple[int, int, Handler]] = {
    "array": (0, 10_000, _array),
    "map": (2, 10_000, _map),
    "struct": (1, 10_000, _struct),
    "named_struct": (2, 10_000, _named_struct),
    "array_distinct": (1, 1, lambda c: Sql(_distinct(_array_of(c)[0]), c.args[0].type)),
    "array_union": (2, 2, _two_arrays(lambda a, b: _distinct(f"({a} || {b})"))),
    "array_intersect": (2, 2, _two_arrays(lambda a, b: _only(a, b, "IS NOT NULL"))),
    "array_except": (2, 2, _two_arrays(lambda a, b: _only(a, b, "IS NULL"))),
    "reverse": (1, 1, _reverse),
    "array_max": (1, 1, _array_extreme("list_max")),
    "array_min": (1, 1, _array_extreme("list_min")),
    "sort_array": (1, 2, _sort_array),
    "array_position": (2, 2, _array_position),
    "array_remove": (2, 2, _array_remove),
    "array_compact": (1, 1, _simple_array('list_filter({0}, lambda "e#0": "e#0" IS NOT NULL)')),
    "slice": (3, 3, _slice),
    "array_join": (2, 3, _array_join),
    "flatten": (1, 1, _flatten),
    "arrays_overlap": (2, 2, _overlap),
    "array_repeat": (2, 2, _array_repeat),
    "sequence": (2, 3, _sequence),
    "map_keys": (1, 1, _map_part("map_keys", 0)),
    "map_values": (1, 1, _map_part("map_values", 1)),
    "map_entries": (1, 1, _map_entries),
    "map_from_arrays": (2, 2, _map_from_arrays),
}
