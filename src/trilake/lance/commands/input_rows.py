"""Convert input rows to a schema and a stream of record batches."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, TypeAlias, Union, get_args, get_origin

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset

from trilake.errors import InvalidArgumentError
from trilake.expr.nested import field_problem
from trilake.expr.views import without_views, without_views_schema
from trilake.lance.file.errors import RowsDoNotFitError, WrongTypeError
from trilake.table.frames import arrow_batches, is_hugging_face

#: Accepted inputs; objects with the Arrow stream interface are accepted as well.
ReaderLike: TypeAlias = (
    pa.Table | pa.dataset.Dataset | pa.dataset.Scanner | Iterable[pa.RecordBatch] | pa.RecordBatchReader
)


def stream(data: Any, schema: pa.Schema | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Convert Arrow data, DataFrames, datasets, scanners and iterables of batches to a schema and a stream of batches.

    String, binary and list views are converted to the plain types.

    Parameters
    ----------
    data: an Arrow table, batch, reader, dataset or scanner, a pandas DataFrame, anything with the Arrow stream
        interface, a dataset of Hugging Face, an iterable of record batches, a dictionary of columns, or a list of
        dictionaries or Pydantic models.
    schema: schema to convert pandas DataFrames to and cast iterables to; required for iterables.

    Raises ``InvalidArgumentError`` for other inputs, and for an iterable without a schema.
    """
    if isinstance(data, list) and data and is_model(type(data[0])):
        data = table_of(type(data[0]), data)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif (
        isinstance(data, dict)
        or (isinstance(data, list) and data and all(isinstance(row, dict) for row in data))
        or is_hugging_face(data)
    ):
        schema_of_rows, rows = arrow_batches(data)
        data = pa.RecordBatchReader.from_batches(schema_of_rows, rows)
    if any(c.__name__ == "DataFrame" and c.__module__.startswith("pandas.") for c in type(data).__mro__):
        data = pa.Table.from_pandas(data, schema=schema)
    if isinstance(data, pa.dataset.Dataset):
        data = data.scanner()
    if isinstance(data, pa.dataset.Scanner):
        data = data.to_reader()
    if isinstance(data, pa.Table):
        own_schema, batches = data.schema, iter(data.to_batches())
    elif isinstance(data, pa.RecordBatchReader):
        own_schema, batches = data.schema, iter(data)
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        own_schema, batches = reader.schema, iter(reader)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        if schema is None:
            raise InvalidArgumentError(
                "Must provide schema to write dataset from RecordBatch iterable", help="pass schema="
            )
        own_schema, batches = schema, iter(data)
    else:
        raise WrongTypeError(
            f"Unknown data type {type(data)}",
            help="pass Arrow data, a DataFrame with the Arrow stream interface, or an iterable of record batches",
        )
    own_schema, batches = plain(own_schema, batches)
    if schema is None or (
        schema.equals(own_schema, check_metadata=True) and isinstance(data, pa.Table | pa.RecordBatchReader)
    ):
        return own_schema, batches
    schema = without_views_schema(schema)
    return schema, _cast(batches, schema)


def plain(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Convert string, binary and list views to the plain types."""
    flat = without_views_schema(schema)
    return flat, iter(batches) if flat is schema else map(_plain, batches)


def _plain(batch: Any) -> Any:
    return without_views(batch) if isinstance(batch, pa.RecordBatch) else batch


def table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Convert input rows as :func:`stream` does, to a table."""
    row_schema, batches = stream(data, schema)
    return pa.Table.from_batches(batches, schema=row_schema)


def _cast(batches: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise WrongTypeError(f"Expected RecordBatch, got {type(batch)}")
        if batch.schema != schema:
            _check_fields(batch.schema, schema)
            try:
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
                continue
            except (pa.ArrowInvalid, ValueError) as e:
                raise RowsDoNotFitError(f"a batch has a schema that does not match the expected schema: {e}") from e
        yield batch


def _check_fields(source: pa.Schema, target: pa.Schema) -> None:
    for f in target:
        at = source.get_field_index(f.name)
        problem = None if at < 0 else field_problem(source.field(at).type, f.type, f.name)
        if problem is not None:
            raise RowsDoNotFitError(
                f"a batch has a schema that does not match the expected schema: {problem}", column=f.name
            )


def numbers(rows: Any, kind: Any = np.int64) -> npt.NDArray[Any]:
    """Convert row positions or ids to an array.  Raises ``InvalidArgumentError`` for other values."""
    if isinstance(rows, pa.Array | pa.ChunkedArray):
        rows = rows.to_numpy(zero_copy_only=False) if isinstance(rows, pa.Array) else rows.to_numpy()
    array = np.asarray(list(rows) if isinstance(rows, range) else rows)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise InvalidArgumentError(
            f"row positions must be integers, got {rows!r:.80}", help="pass a list or array of integers"
        )
    return array.astype(kind)


def check_metadata(schema: pa.Schema) -> None:
    """Raise ``InvalidArgumentError`` for schema metadata that is not UTF-8."""
    for key, value in (schema.metadata or {}).items():
        try:
            key.decode()
            value.decode()
        except UnicodeDecodeError as e:
            raise InvalidArgumentError(
                f"the metadata {key!r} of the schema is not valid UTF-8", help="encode it, for example with base64"
            ) from e


# --- Pydantic models -------------------------------------------------------------------------------------------------

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
    fields = []
    for name, info in model.model_fields.items():
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        kind, nullable = _without_none(info.annotation)
        fields.append(pa.field(name, _type(kind, name, extra), nullable))
    return pa.schema(fields)


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
