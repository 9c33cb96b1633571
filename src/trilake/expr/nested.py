"""Compare the struct fields of Arrow types at any depth.

Arrow's cast of a struct (as of pyarrow 26) matches fields by their exact names, drops extra fields, and fills missing
ones with nulls.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trilake.common.arrow_types import is_list
from trilake.expr.views import without_views_type


def field_problem(
    source: pa.DataType, target: pa.DataType, path: str, *, ignore_case: bool = False, fill: bool = False
) -> str | None:
    """Why structs of ``source`` cannot be stored as those of ``target``; ``None`` if they can.

    Reasons are unknown and duplicate fields, and missing ones without ``fill``.  Other types are not compared.

    >>> field_problem(pa.struct({"a": pa.int8(), "z": pa.int8()}), pa.struct({"a": pa.int8()}), "s")
    'the struct for column s has a field z, which the column lacks'
    """
    source, target = _plain(source), _plain(target)
    pairs: list[tuple[pa.DataType, pa.DataType, str]] = []
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        theirs, ours = ([f.name for f in struct] for struct in (source, target))
        problem = fields_problem(theirs, ours, path, ignore_case=ignore_case, fill=fill)
        if problem is not None:
            return problem
        by_key = {_key(f.name, ignore_case): f.type for f in source}
        named = ((by_key.get(_key(f.name, ignore_case)), f) for f in target)
        pairs += [(kind, f.type, f.name) for kind, f in named if kind is not None]
    elif pa.types.is_map(source) and pa.types.is_map(target):
        pairs += [(source.key_type, target.key_type, "key"), (source.item_type, target.item_type, "value")]
    elif is_list(source) and is_list(target):
        pairs.append((source.value_type, target.value_type, "element"))
    problems = (field_problem(s, t, f"{path}.{part}", ignore_case=ignore_case, fill=fill) for s, t, part in pairs)
    return next((p for p in problems if p is not None), None)


def fields_problem(
    source: Sequence[str], target: Sequence[str], path: str, *, ignore_case: bool = False, fill: bool = False
) -> str | None:
    """Like :func:`field_problem`, for the field names of two structs.

    >>> fields_problem(["a"], ["a", "b"], "s")
    'the struct for column s has no field b, which the column has'
    """
    theirs, target_names = {_key(n, ignore_case) for n in source}, {_key(n, ignore_case) for n in target}
    extra = [n for n in source if _key(n, ignore_case) not in target_names]
    if extra:
        return f"the struct for column {path} has a field {extra[0]}, which the column lacks"
    if len(theirs) < len(source):
        return f"the struct for column {path} has two fields with the same name: {', '.join(source)}"
    lacking = [n for n in target if _key(n, ignore_case) not in theirs]
    if lacking and not fill:
        return f"the struct for column {path} has no field {lacking[0]}, which the column has"
    return None


def _key(name: str, ignore_case: bool) -> str:
    return name.lower() if ignore_case else name


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return without_views_type(kind.value_type if pa.types.is_dictionary(kind) else kind)
