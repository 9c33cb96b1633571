"""Convert instances of Pydantic models to Arrow."""

from __future__ import annotations

import datetime as dt
import types
from enum import Enum
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from trilake.lance.file.errors import WrongTypeError

_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.date: pa.date32(),
}


def is_model(kind: Any) -> bool:
    """Whether ``kind`` is a Pydantic model class."""
    return isinstance(kind, type) and any(c.__module__.startswith("pydantic.") for c in kind.__mro__[1:])


def schema_of(model: Any) -> pa.Schema:
    """Return the Arrow schema of a model; optional fields are nullable.

    Raises ``WrongTypeError`` for an annotation without an Arrow type.
    """
    return pa.schema([_field(name, info) for name, info in model.model_fields.items()])


def table_of(model: Any, rows: Any) -> pa.Table:
    """Convert instances to a table.  Raises ``WrongTypeError`` unless all are of exactly this class."""
    if not isinstance(rows, list):
        raise WrongTypeError(f"rows of a model must be provided as a list, got {type(rows)}")
    for number, row in enumerate(rows):
        if type(row) is not model:
            raise WrongTypeError(
                f"data[{number}] must be a {model.__name__}, got {type(row).__name__}",
                help="pass instances of the model class itself; subclasses may have other columns",
            )
    return pa.Table.from_pylist([row.model_dump() for row in rows], schema=schema_of(model))


def _field(name: str, info: Any) -> pa.Field:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    kind, nullable = _without_none(info.annotation)
    return pa.field(name, _type(kind, name, extra), nullable)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without ``None``, and whether it included ``None``."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    others = [arg for arg in get_args(annotation) if arg is not type(None)]
    return (others[0] if len(others) == 1 else annotation), len(others) < len(get_args(annotation))


def _type(kind: Any, name: str, extra: dict[str, Any]) -> pa.DataType:
    if kind in _TYPES:
        return _TYPES[kind]
    if kind is dt.datetime:
        return pa.timestamp("us", tz=extra.get("tz"))
    if get_origin(kind) in (list, tuple) and get_args(kind):
        item, nullable = _without_none(get_args(kind)[0])
        item_type = _type(item, name, extra)
        return pa.list_(pa.field("item", item_type, nullable)) if nullable else pa.list_(item_type)
    if is_model(kind):
        return pa.struct(list(schema_of(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = {type(member.value) for member in kind}
        if values == {str}:
            return pa.dictionary(pa.int32(), pa.string())
        return _TYPES.get(values.pop(), pa.string()) if len(values) == 1 else pa.string()
    raise WrongTypeError(f"the field {name!r} of type {kind} has no Arrow type", help="change its annotation")
