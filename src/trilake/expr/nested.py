"""The fields of structs at any depth of Arrow types: whether the values of one type are all those of another.

Arrow's own cast of a struct (as of pyarrow 26) matches fields by their exact names, drops those that the target has
not, and fills with nulls those that it does not find.
"""

from __future__ import annotations

import pyarrow as pa

from trilake.expr.views import without_views_type


def field_problem(
    source: pa.DataType, target: pa.DataType, path: str, *, ignore_case: bool = False, fill: bool = False
) -> str | None:
    """What keeps structs of ``source`` from being stored as those of ``target``; ``None`` where nothing does.

    That is a field which the other type does not have, or has twice.  With ``fill``, ``source`` may lack fields.  Types
    of values that are no structs are not looked at.

    >>> field_problem(pa.struct({"a": pa.int8(), "z": pa.int8()}), pa.struct({"a": pa.int8()}), "s")
    'the struct for column s has a field z, which the column has not'
    """
    source, target = _plain(source), _plain(target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct_problem(source, target, path, ignore_case=ignore_case, fill=fill)
    pairs: list[tuple[pa.DataType, pa.DataType, str]] = []
    if pa.types.is_map(source) and pa.types.is_map(target):
        pairs += [(source.key_type, target.key_type, "key"), (source.item_type, target.item_type, "value")]
    elif _is_list(source) and _is_list(target):
        pairs.append((source.value_type, target.value_type, "element"))
    problems = (field_problem(s, t, f"{path}.{part}", ignore_case=ignore_case, fill=fill) for s, t, part in pairs)
    return next((p for p in problems if p is not None), None)


def _struct_problem(
    source: pa.StructType, target: pa.StructType, path: str, *, ignore_case: bool, fill: bool
) -> str | None:
    def key(name: str) -> str:
        return name.lower() if ignore_case else name

    theirs, own = {key(f.name): f for f in source}, {key(f.name): f for f in target}
    extra = [f.name for name, f in theirs.items() if name not in own]
    if extra:
        return f"the struct for column {path} has a field {extra[0]}, which the column has not"
    if len(theirs) < source.num_fields:
        return f"the struct for column {path} has two fields of one name: {', '.join(f.name for f in source)}"
    for name, f in own.items():
        if name not in theirs:
            if not fill:
                return f"the struct for column {path} has no field {f.name}, which the column has"
            continue
        problem = field_problem(theirs[name].type, f.type, f"{path}.{f.name}", ignore_case=ignore_case, fill=fill)
        if problem is not None:
            return problem
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return without_views_type(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_list(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))
