"""Convert any row container to Arrow batches: the inputs of :func:`trilake.write` except Spark DataFrames."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from os import PathLike
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from trilake.common.arguments import described
from trilake.common.text import plural
from trilake.errors import InvalidArgumentError, SchemaMismatchError

_VALUE_HELP = "give all values of a column one type, and all columns the same length"
#: What pyarrow raises for values that it cannot convert, in different versions.
_REJECTIONS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def columns_table(columns: Mapping[Any, Any]) -> pa.Table:
    """A table of columns by name; other names become strings, as in pandas.

    Raises ``SchemaMismatchError`` for columns of mixed types, and for values that Arrow would change.

    >>> columns_table({"n": [1, None]}).to_pydict()
    {'n': [1, None]}
    >>> columns_table({"d": [dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3)]})
    Traceback (most recent call last):
    trilake.errors.SchemaMismatchError: [SCHEMA_MISMATCH] column d has a mix of dates and datetimes ...
    """
    by_name = {str(name): values for name, values in columns.items()}
    if len(by_name) < len(columns):
        twice = [name for name in by_name if sum(str(c) == name for c in columns) > 1]
        raise SchemaMismatchError(f"two columns are named {twice[0]!r}", help="rename one of them", column=twice[0])
    return checked(lambda: pa.table(by_name), lambda: iter(by_name.items()))


def checked(
    make: Callable[[], Any], columns: Callable[[], Iterator[tuple[str, Any]]], *, from_pandas: bool = False
) -> Any:
    """Call ``make`` to convert ``columns``; its result has a ``schema``.

    Raises ``SchemaMismatchError`` with the wrong column, like :func:`columns_table`.
    """
    try:
        result = make()
    except _REJECTIONS as e:
        for name, values in columns():
            try:
                pa.array(values, from_pandas=from_pandas or None)
            except _REJECTIONS:
                if not isinstance(values, Iterable):
                    raise SchemaMismatchError(
                        f"a column must be a list of values, got {values!r:.80}", help="write [value]", column=name
                    ) from e
                raise _rejected(e, name) from e
        raise _rejected(e) from e
    for field, (name, values) in zip(result.schema, columns(), strict=False):
        # Python objects, whose type Arrow infers.
        if isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object":
            _check(name, values, field.type)
    return result


def _rejected(cause: Exception, column: str | None = None) -> SchemaMismatchError:
    what = cause.args[0] if len(cause.args) == 2 else cause  # for a frame the second argument is the column's name
    if lengths := re.fullmatch(r"Column \d+ named (.*) expected length (\d+) but got length (\d+)", str(what)):
        what = f"column {lengths[1]} has {plural(int(lengths[3]), 'value')}, but others have {int(lengths[2]):,}"
    return SchemaMismatchError(f"Arrow cannot convert the values: {what}", help=_VALUE_HELP, column=column)


def _check(column: str, values: Collection[Any], kind: pa.DataType) -> None:
    if pa.types.is_struct(kind):
        rows = [v for v in values if isinstance(v, Mapping)]
        for field in kind:
            _check(f"{column}.{field.name}", [row.get(field.name) for row in rows], field.type)
    elif pa.types.is_list(kind):
        if any(v.mask.any() for v in _named(values, "MaskedArray")):
            raise _changed(column, "arrays with a mask", "pass lists with None for masked values")
        inner = kind.value_type
        if pa.types.is_nested(inner) or pa.types.is_temporal(inner) or pa.types.is_binary(inner):  # may be changed
            _check(f"{column}.element", list(chain.from_iterable(v for v in values if v is not None)), inner)
    elif pa.types.is_binary(kind):
        if _of_kind(values, str):
            raise _changed(column, "a mix of strings and bytes", "make all of them strings, or all of them bytes")
    elif pa.types.is_time(kind):
        if any(v.tzinfo is not None for v in _of_kind(values, dt.time)):
            raise _changed(column, "times of day with a zone", "keep the zone in a separate column")
    elif pa.types.is_date(kind):
        if any(v.time() != dt.time.min for v in _of_kind(values, dt.datetime)):
            raise _changed(column, "a mix of dates and datetimes", "make all of them dates, or all of them datetimes")
    elif pa.types.is_timestamp(kind):
        times = _of_kind(values, dt.datetime)
        if len({v.tzinfo is None for v in times}) > 1:
            raise _changed(column, "times with a zone and times without one", "give all of them a zone, or none")
        if any(getattr(v, "nanosecond", 0) for v in times):
            raise _changed(column, "nanoseconds", "make it a column of type datetime64[ns]")
    elif pa.types.is_duration(kind) and any(getattr(v, "nanoseconds", 0) for v in _of_kind(values, dt.timedelta)):
        raise _changed(column, "nanoseconds", "make it a column of type timedelta64[ns]")


def _named(values: Collection[Any], name: str) -> list[Any]:
    kinds = {k for k in set(map(type, values)) if k.__name__ == name}
    return [v for v in values if type(v) in kinds] if kinds else []


def _of_kind(values: Collection[Any], kind: type) -> list[Any]:
    """The values of a class, except pandas' ``NaT``, which belongs to all of them."""
    kinds = {k for k in set(map(type, values)) if issubclass(k, kind) and k.__name__ != "NaTType"}
    return [v for v in values if type(v) in kinds] if kinds else []


def _changed(column: str, what: str, remedy: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"column {column} has {what}", help=remedy, column=column)


_HELP = (
    "pass a Spark DataFrame, Arrow data, a pandas or polars DataFrame, a DuckDB relation, a dict of columns, a list of"
    " dicts, or anything with the Arrow stream or array interface"
)


_CAST = "cast the column before writing, e.g. to a decimal or a string"
_OF_POLARS_ALONE = dict.fromkeys(("Object", "Int128", "UInt128"), _CAST)
_OF_DUCKDB_ALONE = {
    "TIME WITH TIME ZONE": "keep the zone in a separate column, and cast the other to TIME",
    "BIT": "cast the column to VARCHAR",
    "UHUGEINT": "cast the column to DECIMAL(38,0), UBIGINT or VARCHAR",
    "BIGNUM": "cast the column to DECIMAL(38,0) or VARCHAR",
}


def is_dataframe(data: object) -> bool:
    """Whether ``data`` is a Spark DataFrame, classic or Connect, without importing Spark."""
    return _is(data, "pyspark.sql", "DataFrame")


def is_hugging_face(data: object) -> bool:
    """Whether ``data`` is a dataset of Hugging Face, or a dictionary of them, without importing the library."""
    return any(_is(data, "datasets", name) for name in ("Dataset", "IterableDataset", "DatasetDict"))


def _is(data: object, module: str, name: str) -> bool:
    """Whether an object is an instance of a library's class, without importing the library."""
    return any(
        c.__module__.split(".")[: module.count(".") + 1] == module.split(".") and c.__name__ == name
        for c in type(data).__mro__
    )


class Purpose(StrEnum):
    """What the rows are for, as the start of the error for anything else."""

    WRITE = "cannot write"
    MERGE = "the source of a merge cannot be"


def arrow_batches(data: Any, purpose: Purpose = Purpose.WRITE) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches of any row container.

    Raises ``InvalidArgumentError`` for an unsupported container, ``SchemaMismatchError`` for columns of mixed types.

    >>> schema, batches = arrow_batches([{"n": 1, "s": "a"}, {"n": 2, "s": None}])
    >>> schema.names, sum(b.num_rows for b in batches)
    (['n', 's'], 2)
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches(max_chunksize=1 << 20))
    if isinstance(data, ds.Dataset):
        data = data.scanner()
    if isinstance(data, ds.Scanner):
        data = data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if _is(data, "polars", "LazyFrame"):
        return arrow_batches(data.collect(engine="streaming"))
    if _is(data, "pandas", "DataFrame"):
        return _of_pandas(data)
    if is_hugging_face(data):
        return _of_hugging_face(data, purpose)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(data, purpose)
    if hasattr(data, "__arrow_c_array__"):
        return arrow_batches(_of_array(data, purpose))
    if isinstance(data, Mapping):
        return arrow_batches(columns_table(data))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _of_items(data, purpose)
    swapped = isinstance(data, str | PathLike) and purpose is Purpose.WRITE
    first = "pass the rows first, then the location: trilake.write(rows, path); " if swapped else ""
    raise InvalidArgumentError(f"{purpose} {described(data)}", help=first + _HELP)


def _of_array(data: Any, purpose: Purpose) -> pa.RecordBatch:
    """One batch from an Arrow struct array, also of other libraries."""
    try:
        return data if isinstance(data, pa.RecordBatch) else pa.record_batch(data)
    except pa.ArrowInvalid as e:
        raise InvalidArgumentError(f"{purpose} {described(data)}: it is not a batch of columns: {e}", help=_HELP) from e


def _of_items(data: Iterable[Any], purpose: Purpose) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A list of batches, or of rows as dicts."""
    iterator = (_of_array(item, purpose) if hasattr(item, "__arrow_c_array__") else item for item in data)
    first = next(iterator, None)
    if isinstance(first, pa.RecordBatch):
        return first.schema, _alike(first, iterator)
    if isinstance(first, Mapping):
        rows = [first, *iterator]
        wrong = next((r for r in rows if not isinstance(r, Mapping)), None)
        if wrong is not None:
            raise InvalidArgumentError(
                f"every row must be a dict, got {described(wrong)}", help="pass a list of dicts, or a dict of columns"
            )
        # Also the columns that only later rows have.
        names = dict.fromkeys(k for row in rows for k in row)
        return arrow_batches(columns_table({n: [row.get(n) for row in rows] for n in names}))
    if first is None and isinstance(data, list | tuple):
        raise InvalidArgumentError(
            f"{purpose} an empty list, which has no columns",
            help="pass an empty Arrow table or DataFrame, which has columns",
        )
    items = "" if first is None else f" of {type(first).__name__}s"
    raise InvalidArgumentError(f"{purpose} a {type(data).__name__}{items}", help=_HELP)


def _of_pandas(frame: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a pandas frame, and its index if it has a name.

    Raises ``SchemaMismatchError`` if the index has the name of a column, but other values.
    """
    labels = {
        str(name): frame.index.get_level_values(i).to_series(range(len(frame)))
        for i, name in enumerate(frame.index.names)
        if name is not None
    }
    for i, name in enumerate(map(str, frame.columns)):
        if name in labels and not labels[name].equals(frame.iloc[:, i].reset_index(drop=True)):
            raise SchemaMismatchError(
                f"the index and a column are both named {name!r}, with different values",
                help="rename the index, or drop it with reset_index(drop=True)",
                column=name,
            )
    table = checked(
        # Arrow drops a range index, too.
        lambda: pa.Table.from_pandas(frame, preserve_index=True if labels else None),
        lambda: ((str(name), frame.iloc[:, i]) for i, name in enumerate(frame.columns)),
        from_pandas=True,
    )
    unnamed = [n for n in table.column_names if n.startswith("__index_level_") and n.endswith("__")]
    return arrow_batches(table.drop_columns(unnamed))


def _of_hugging_face(data: Any, purpose: Purpose) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The selected rows of a dataset in their order; the schema's metadata describes its features."""
    if isinstance(data, Mapping):
        raise InvalidArgumentError(f"{purpose} {described(data)}", help="pass one of its datasets")
    if data.features is None:
        raise InvalidArgumentError(f"{purpose} a dataset without features", help="create it with features=")
    schema = data.features.arrow_schema
    tables = data.with_format("arrow").iter(batch_size=1000)
    return schema, (batch for table in tables for batch in table.cast(schema).to_batches())


def _of_stream(data: Any, purpose: Purpose) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    from_duckdb = _is(data, "duckdb", "DuckDBPyRelation") or _is(data, "_duckdb", "DuckDBPyRelation")
    if from_duckdb:
        _check_types("DuckDB", zip(data.columns, data.types, strict=True), _OF_DUCKDB_ALONE)
    elif _is(data, "polars", "DataFrame"):
        _check_types("polars", data.schema.items(), _OF_POLARS_ALONE)
    try:
        stream = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as e:
        if "non-struct" not in str(e):
            raise SchemaMismatchError(
                f"{purpose} {described(data)}: Arrow does not accept its columns: {e}", help=_CAST
            ) from e
        # A single column, such as a polars Series.
        raise InvalidArgumentError(f"{purpose} {described(data)}: it has no named columns", help=_HELP) from e
    return stream.schema, map(_within_precision, stream) if from_duckdb else iter(stream)


def _check_types(library: str, columns: Iterable[tuple[str, Any]], changed: Mapping[str, str]) -> None:
    """Raise ``SchemaMismatchError`` for columns that a library exports with changed values.

    DuckDB exports time of day without its zone, bits as its own bytes, and the largest integers as negative ones;
    polars objects as memory addresses, and 128-bit integers in a type unknown to Arrow.
    """
    for name, kind in columns:
        for word, remedy in changed.items():
            if re.search(rf"\b{word}\b", re.sub("'.*?'|\".*?\"", "", str(kind))):
                raise SchemaMismatchError(f"Arrow has no type for {kind} of {library}", help=remedy, column=name)


def _within_precision(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, checked for HUGEINTs that exceed the 38 digits in which DuckDB exports them."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.type == pa.decimal128(38, 0):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as e:
                raise SchemaMismatchError(f"a value of column {field.name} is too large: {e}", column=field.name) from e
    return batch


def _alike(first: pa.RecordBatch, rest: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    for batch in rest:
        # Columns are matched by name: one that the first batch lacks would be dropped silently.
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(first.schema):
            schema_text = batch.schema.to_string(show_field_metadata=False) if hasattr(batch, "schema") else type(batch)
            raise SchemaMismatchError(
                f"the batches to write differ in schema: {schema_text} after {first.schema.to_string()}".replace(
                    "\n", ", "
                ),
                help="give all batches the same schema before writing",
            )
        yield batch
