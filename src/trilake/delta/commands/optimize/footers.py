"""Find files to rewrite, based on the columns in their Parquet footers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.commands.optimize.bins import Numbers, has_vector
from trilake.delta.commands.rows.row_changes import row_columns
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.protocol.column_mapping import max_column_id
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.scan.conform import Resolver
from trilake.delta.scan.read import locate
from trilake.errors import ObjectNotFoundError, TrilakeError
from trilake.parquet.files import DAMAGE, UNREADABLE_HELP, unreadable
from trilake.parquet.variants import is_shredded
from trilake.storage.base import Store

#: Footers read concurrently.
_READERS = 16


def files_where(store: Store, snapshot: Snapshot, test: Callable[[pa.Schema], bool]) -> Numbers:
    """Positions of the files whose schema passes a test; a missing file fails it."""

    def holds(path: str) -> bool:
        place, key = locate(store, path)
        try:
            with place.open_input(key) as source:
                return test(pq.read_schema(source))
        except ObjectNotFoundError:
            return True
        except DAMAGE as e:
            if isinstance(e, TrilakeError):
                raise
            raise unreadable(e, help=UNREADABLE_HELP, file=f"{place.uri}/{key}") from e

    with ThreadPoolExecutor(_READERS) as pool:
        return np.flatnonzero(list(pool.map(holds, decoded_paths(snapshot.adds["path"]).to_pylist())))


def may_hold_dropped_columns(snapshot: Snapshot) -> bool:
    """Whether files may still have dropped columns: some assigned ids belong to no column."""
    mapped = snapshot.metadata.column_mapping_mode != "none"
    return mapped and max_column_id(snapshot.metadata) > len(nested_fields(snapshot.schema))


def purgeable(store: Store, snapshot: Snapshot) -> Numbers:
    """Positions of the files with deleted rows or dropped columns."""
    with_vectors = np.flatnonzero(has_vector(snapshot.adds))
    if not may_hold_dropped_columns(snapshot) or snapshot.metadata.provider.lower() != "parquet":
        return with_vectors
    resolver = Resolver(snapshot.metadata.column_mapping_mode)
    # Files may keep row tracking columns, although these are not columns of the table.
    expected = StructType((*snapshot.schema.fields, *row_columns(snapshot)))
    extra = files_where(store, snapshot, lambda s: _has_more(pa.struct(list(s)), expected, resolver))
    return np.union1d(with_vectors, extra)


def _pairs(file_type: pa.DataType, target: DataType, resolver: Resolver) -> Iterator[tuple[pa.DataType, DataType]]:
    """A type in a file and all types inside it, each with the table's type that it is read as."""
    yield file_type, target
    if isinstance(target, StructType) and pa.types.is_struct(file_type):
        children = list(file_type)
        for f, i in zip(target.fields, resolver.places(target.fields, children), strict=True):
            if i is not None:
                yield from _pairs(children[i].type, f.type, resolver)
    elif isinstance(target, ArrayType) and pa.types.is_list(file_type):
        yield from _pairs(file_type.value_type, target.element, resolver)
    elif isinstance(target, MapType) and pa.types.is_map(file_type):
        yield from _pairs(file_type.key_type, target.key, resolver)
        yield from _pairs(file_type.item_type, target.value, resolver)


def _has_more(file_type: pa.DataType, target: StructType, resolver: Resolver) -> bool:
    for f, t in _pairs(file_type, target, resolver):
        if isinstance(t, StructType) and pa.types.is_struct(f):
            matched = set(resolver.places(t.fields, list(f))) - {None}
            if len(matched) < f.num_fields:
                return True
    return False


def with_other_types(store: Store, snapshot: Snapshot) -> Numbers:
    """Positions of the files with columns whose types have been widened since."""
    resolver = Resolver(snapshot.metadata.column_mapping_mode)

    def differs(schema: pa.Schema) -> bool:
        return not all(_is_of(f, t) for f, t in _pairs(pa.struct(list(schema)), snapshot.schema, resolver))

    return files_where(store, snapshot, differs)


def _is_of(file_type: pa.DataType, target: DataType) -> bool:
    """Whether a file stores values of a primitive type as such."""
    if not isinstance(target, PrimitiveType):
        return True
    if str(target) == "variant":
        return not is_shredded(file_type)
    # The unit of a timestamp may differ between files.
    return bool(file_type == target.arrow or (pa.types.is_timestamp(file_type) and pa.types.is_timestamp(target.arrow)))
