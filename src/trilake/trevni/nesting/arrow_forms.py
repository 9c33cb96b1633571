"""Convert Arrow arrays to plain forms without special encodings, and back.

In the plain form of a type, views become arrays with offsets, dictionaries and run-end encodings are decoded, extension
types become their storage, and a union becomes a struct of lists of 0 or 1 values, one list per branch.  Shredding and
assembling use plain arrays only.  Arrow can filter, cast and concatenate only some of the other types, so this module
avoids these operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import mapped, rebuilt
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.expr.views import list_of_view

T = pa.types


def bare(type_: pa.DataType) -> pa.DataType:
    """Remove dictionary, run-end encoding, extension and union from a type, but not inside lists and structs.

    >>> bare(pa.dense_union([pa.field("a", pa.int32()), pa.field("b", pa.string())]))
    StructType(struct<a: list<a: int32> not null, b: list<b: string> not null>)
    """
    while True:
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        elif T.is_union(type_):
            branches = [type_.field(i) for i in range(type_.num_fields)]
            return pa.struct([pa.field(branch.name, pa.list_(branch), nullable=False) for branch in branches])
        elif T.is_dictionary(type_) or T.is_run_end_encoded(type_):
            type_ = type_.value_type
        else:
            return type_


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the plain form of a type, at all depths.

    >>> plain_type(pa.list_view(pa.dictionary(pa.int8(), pa.string_view())))
    ListType(list<item: large_string>)
    """
    return mapped(type_, _plain)


def _plain(type_: pa.DataType) -> pa.DataType:
    type_ = bare(type_)
    if T.is_string_view(type_):
        return pa.large_string()
    if T.is_binary_view(type_):
        return pa.large_binary()
    if T.is_large_list_view(type_):
        return pa.large_list(type_.value_field)
    return pa.list_(type_.value_field) if T.is_list_view(type_) else type_


def _is_list_view(type_: pa.DataType) -> bool:
    return bool(T.is_list_view(type_) or T.is_large_list_view(type_))


def _is_view(type_: pa.DataType) -> bool:
    return bool(T.is_string_view(type_) or T.is_binary_view(type_))


def check_form(field: pa.Field) -> None:
    """Raise ``InvalidArgumentError`` for a type that would not be read back unchanged."""
    for type_ in _within(field.type):
        if T.is_dictionary(type_) and T.is_nested(plain_type(type_.value_type)):
            raise InvalidArgumentError(
                f"a dictionary of {type_.value_type} is not supported: Arrow cannot build one",
                help="decode the column before writing it",
                column=field.name,
            )
    schema = pa.schema([field])
    try:
        survives = pa.ipc.read_schema(schema.serialize()).equals(schema, check_metadata=True)
    except (pa.ArrowException, ValueError, TypeError):
        survives = False
    if not survives:
        raise InvalidArgumentError(
            f"the type {field.type} is not supported: Arrow's IPC format changes it",
            help="cast the column to another type",
            column=field.name,
        )


def _within(type_: pa.DataType) -> list[pa.DataType]:
    types = [type_]
    if isinstance(type_, pa.BaseExtensionType):
        types += _within(type_.storage_type)
    elif T.is_dictionary(type_) or T.is_run_end_encoded(type_):
        types += _within(type_.value_type)
    else:
        for i in range(type_.num_fields):
            types += _within(type_.field(i).type)
    return types


# --- to plain --------------------------------------------------------------------------------------------------------


def to_plain(array: pa.Array) -> pa.Array:
    """Convert an array to its plain form."""
    return _to(array, plain_type(array.type))


def _to(array: pa.Array, plain: pa.DataType) -> pa.Array:
    type_ = array.type
    if type_ == plain and not isinstance(type_, pa.BaseExtensionType):
        return array
    if isinstance(array, pa.ExtensionArray):
        return _to(array.storage, plain)
    if T.is_dictionary(type_):
        return _to(array.dictionary, plain).take(array.indices)
    if T.is_run_end_encoded(type_):
        at = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(np.asarray(array.run_ends), at, side="right")
        return _to(array.values, plain).take(pa.array(runs))
    if T.is_union(type_):
        return _from_union(array, plain)
    if _is_list_view(type_):
        return _to(list_of_view(array), plain)
    return array.cast(plain) if _is_view(type_) else rebuilt(array, plain, lambda part, f: _to(part, f.type))


def _sliced(buffer: pa.Buffer | None, type_: Any, array: pa.Array) -> np.ndarray[Any, Any]:
    """Return the part of a buffer that belongs to an array; ``buffers()`` ignores the offset of a slice."""
    if buffer is None or not len(array):
        return np.empty(0, type_)
    return np.frombuffer(buffer, type_, count=len(array) + array.offset)[array.offset :]


def _from_union(array: pa.Array, plain: pa.DataType) -> pa.Array:
    type_ = array.type
    _, codes_buffer, *starts = array.buffers()[:3]
    codes = _sliced(codes_buffer, np.int8, array)
    lists = []
    for i, code in enumerate(type_.type_codes):
        of_branch = codes == code
        child = _to(array.field(i), plain.field(i).type.value_type)
        if type_.mode == "dense":
            values = child.take(pa.array(_sliced(starts[0], np.int32, array)[of_branch]))
        else:
            values = child.filter(pa.array(of_branch))
        offsets = np.concatenate(([0], np.cumsum(of_branch))).astype(np.int32)
        lists.append(pa.ListArray.from_arrays(pa.array(offsets), values, type=plain.field(i).type))
    fields = [plain.field(i) for i in range(plain.num_fields)]
    return pa.StructArray.from_arrays(lists, fields=fields)


# --- from plain ------------------------------------------------------------------------------------------------------


def from_plain(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert an array from its plain form to a type.

    Raises ``SchemaMismatchError`` for too many values for its indices, and ``ValueError`` for another form.
    """
    if array.type == type_ and not isinstance(type_, pa.BaseExtensionType):
        return array
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, from_plain(array, type_.storage_type))
    if T.is_dictionary(type_):
        return _to_dictionary(array, type_)
    if T.is_run_end_encoded(type_):
        return _to_runs(array, type_)
    if T.is_union(type_):
        return _to_union(array, type_)
    if _is_list_view(type_):
        return _to_list_view(array, type_)
    if T.is_struct(type_) and array.null_count:
        # Unlike field(), flatten() gives the fields the nulls of the struct, which a union in them needs.
        parts = [from_plain(field, type_.field(i).type) for i, field in enumerate(array.flatten())]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=array.is_null())
    return array.cast(type_) if _is_view(type_) else rebuilt(array, type_, lambda part, f: from_plain(part, f.type))


def from_plain_chunks(chunks: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Convert a column of a table from its plain form."""
    if chunks.type == type_ and not isinstance(type_, pa.BaseExtensionType):
        return chunks
    most = max_rows(type_)
    parts = [chunk.slice(at, most) for chunk in chunks.chunks for at in range(0, len(chunk), most)]
    return pa.chunked_array([from_plain(part, type_) for part in parts], type_)


def filtered(array: pa.Array, mask: pa.Array) -> pa.Array:
    """Filter an array of any type; Arrow can filter only some types."""
    return from_plain(to_plain(array).filter(mask), array.type)


def max_rows(type_: pa.DataType) -> int:
    """Return the maximum length of an array of a type: run ends may have 16 bits."""
    short = any(T.is_run_end_encoded(one) and one.run_end_type == pa.int16() for one in _within(type_))
    return 0x7FFF if short else 1 << 62


def _too_many(count: int, what: pa.DataType, type_: pa.DataType) -> SchemaMismatchError:
    return SchemaMismatchError(f"{what} is too small for {count} values in {type_}", help="read fewer rows at a time")


def _to_dictionary(array: pa.Array, type_: pa.DataType) -> pa.Array:
    encoded = array.dictionary_encode()
    values = encoded.dictionary
    if len(values) > 1 << (type_.index_type.bit_width - (not str(type_.index_type).startswith("u"))):
        raise _too_many(len(values), type_.index_type, type_)
    indices = encoded.indices.cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, from_plain(values, type_.value_type), ordered=type_.ordered)


def _to_runs(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if len(array) > np.iinfo(type_.run_end_type.to_pandas_dtype()).max:
        raise _too_many(len(array), type_.run_end_type, type_)
    try:
        runs = pc.run_end_encode(array, run_end_type=type_.run_end_type)
        ends, values = runs.run_ends, runs.values
    except pa.ArrowNotImplementedError:
        # Arrow cannot compare these values, so each becomes a run.
        ends, values = pa.array(np.arange(1, len(array) + 1), type_.run_end_type), array
    return pa.RunEndEncodedArray.from_arrays(ends, from_plain(values, type_.value_type), type=type_)


def _to_list_view(array: pa.Array, type_: pa.DataType) -> pa.Array:
    width = np.int64 if T.is_large_list_view(type_) else np.int32
    bounds = np.asarray(array.offsets)
    offsets, sizes = bounds[:-1], np.diff(bounds)
    kind = pa.LargeListViewArray if T.is_large_list_view(type_) else pa.ListViewArray
    starts = pa.array(offsets.astype(width))
    mask = array.is_null() if array.null_count else None
    elements = from_plain(array.values, type_.value_type)
    return kind.from_arrays(starts, pa.array(sizes.astype(width)), elements, type=type_, mask=mask)


def _to_union(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert to a union; a null, whose parent is null, becomes a null of the first branch."""
    lists = array.flatten()
    count = len(array)
    lengths = np.array([np.asarray(pc.fill_null(pc.list_value_length(one), 0)) for one in lists], np.int64)
    lengths = lengths.reshape(len(lists), count)
    there = np.asarray(array.is_valid())
    if (lengths.sum(axis=0) != there).any() or (lengths > 1).any() or (count and not lists):
        raise ValueError("a union value must belong to exactly one branch")
    branch = lengths.argmax(axis=0) if lists else np.empty(0, np.int64)
    codes = pa.py_buffer(np.array(type_.type_codes, np.int8)[branch])
    places = np.where(lengths == 1, lengths.cumsum(axis=1) - 1, -1)
    children = [one.flatten() for one in lists]
    buffers = [None, codes]
    if type_.mode == "sparse":
        children = [c.take(pa.array(at, mask=at < 0)) for c, at in zip(children, places, strict=True)]
    else:
        if not there.all():
            # Offsets must ascend within each branch, so put nulls into the first branch in order.
            at = places[0][branch == 0]
            children[0] = children[0].take(pa.array(at, mask=at < 0))
            places[0] = np.where(branch == 0, (branch == 0).cumsum() - 1, -1)
        buffers.append(pa.py_buffer(places.max(axis=0, initial=-1).astype(np.int32)))
    wrapped = [from_plain(child, type_.field(i).type) for i, child in enumerate(children)]
    return pa.Array.from_buffers(type_, count, buffers, children=wrapped)
