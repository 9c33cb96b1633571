"""Columns, row counts and statistics from the footers of Parquet files.  No row is read.

Protocol: *Per-file Statistics*.  Unsound bounds are left out: Parquet's bounds of floating point columns ignore NaN,
which is the greatest value, so those columns get no upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.common.arrow_types import leaf_paths, mapped
from trilake.common.arrow_types import types_in as arrow_types_in
from trilake.delta.commands.maintenance.convert_statistics import bulk_columns, bulk_statistics
from trilake.delta.commands.rows.row_changes import gathered
from trilake.delta.files.file_statistics import StatisticsPlan, file_statistics, stated_columns
from trilake.delta.files.file_writer import float_paths
from trilake.delta.protocol.schema import (
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    each_type,
    from_arrow,
    needs_mark,
    paired,
    parse_schema,
    parts,
    types_in,
    with_parts,
)
from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError, SchemaMismatchError, TrilakeError
from trilake.parquet.files import (
    DAMAGE,
    SMALL_FOOTER,
    TAIL,
    checked_bytes,
    checked_footer,
    end_of_schema,
    footer_length,
    leaves_of,
    open_parquet,
    unreadable,
)
from trilake.parquet.footer_walk import FEWEST, walk_alike
from trilake.parquet.old_calendar import Rebasing, old_values, rebasing_of
from trilake.parquet.variants import is_shredded, variant_groups
from trilake.storage.base import Store
from trilake.storage.reader import ObjectFile

#: Footer key under which Spark stores the schema of its rows.
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
#: Most bytes of footers in memory, and of concurrent requests to an object store.
_RUN, _REQUESTS = 16 << 20, 16
#: The most schemas whose files are processed together; files with other schemas are read one by one.
_SCHEMAS = 16


@dataclass(frozen=True)
class Footer:
    """The footer of one file; ``schema`` is the JSON of its columns, ``stats`` that of an ``add`` action."""

    key: str
    rows: int
    schema: str
    stats: str
    #: Whether it has shredded variants.
    shredded: bool = False


@dataclass(frozen=True)
class FooterReader:
    """Reads the footers of some files, in any process.

    ``configuration`` are the properties of the new table, which say which columns get statistics.
    """

    store: Store
    configuration: Mapping[str, str]
    statistics: bool = True

    def __call__(self, keys: Sequence[str]) -> list[Footer]:
        footers: dict[str, Footer] = {}
        shape: _Shape | None = None
        for ends in gathered(self._ends(keys), lambda end: (len(end.footer),), (_RUN,)):
            if self.statistics:
                footers.update((f.key, f) for f in self._together(ends))
            for end in ends:
                if end.key not in footers:
                    footers[end.key], shape, _ = self._alone(end, shape)
        return [footers[key] for key in keys]

    def _ends(self, keys: Sequence[str]) -> Iterator[_End]:
        first = self._end(keys[0])
        yield first
        if not first.remote:
            yield from map(self._end, keys[1:])
            return
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for start in range(1, len(keys), _REQUESTS):
                yield from pool.map(self._end, keys[start : start + _REQUESTS])

    def _end(self, key: str) -> _End:
        with self._damage(key), self.store.open_input(key) as source:
            size = source.size()
            source.seek(max(0, size - TAIL))
            length = footer_length(bytes(source.read(TAIL)), size)
            if length is None or length > SMALL_FOOTER:
                return _End(key, size, isinstance(source, ObjectFile))
            source.seek(size - TAIL - length)
            return _End(key, size, isinstance(source, ObjectFile), bytes(source.read(length)))

    def _alone(self, end: _End, last: _Shape | None) -> tuple[Footer, _Shape, pq.FileMetaData]:
        """One footer, its columns, and Arrow's reading of it; ``last`` are the columns of the previous file.

        Raises ``CorruptFileError`` if the file is not Parquet, ``SchemaMismatchError`` for types that Delta tables
        lack.
        """
        with self._damage(end.key), end.opened(self.store) as source:
            file = open_parquet(source, as_noted=True)
            metadata = file.metadata
            if self.statistics and end.footer:
                checked_bytes(end.footer, end.size, metadata)
            elif self.statistics:
                checked_footer(source, file)
            is_same = last is not None and last.is_of(file)
            shape = last if is_same and last else _Shape.of(file, f"{self.store.uri}/{end.key}", self.configuration)
            count = f'{{"numRecords":{metadata.num_rows}}}'
            stats = shape.stats(metadata, rebasing_of(file)) if self.statistics else count
            return Footer(end.key, metadata.num_rows, shape.schema_json, stats, shape.shredded), shape, metadata

    def _together(self, ends: Sequence[_End]) -> Iterator[Footer]:
        """The footers of files that share their columns with many others; the rest is left to :meth:`_alone`."""
        by_schema: dict[bytes, list[_End]] = {}
        for end in ends:
            schema = next((prefix for prefix in by_schema if end.footer.startswith(prefix)), None)
            if schema is None:
                if len(by_schema) >= _SCHEMAS or (place := end_of_schema(end.footer)) is None:
                    continue
                by_schema[schema := end.footer[:place]] = []
            by_schema[schema].append(end)
        for schema, alike in by_schema.items():
            if len(alike) >= FEWEST:
                yield from self._alike(len(schema), alike)

    def _alike(self, start: int, ends: Sequence[_End]) -> Iterator[Footer]:
        _, shape, metadata = self._alone(ends[0], None)
        leaves = leaves_of(metadata.schema)
        table = walk_alike([e.footer for e in ends], [e.size for e in ends], start, leaves)
        by_rest: dict[bytes, list[int]] = {}
        for number in np.flatnonzero(table.sound).tolist():
            by_rest.setdefault(table.rests[number], []).append(number)
        for rest, numbers in by_rest.items():
            if len(numbers) < FEWEST:
                continue
            _, shape, metadata = self._alone(ends[numbers[0]], shape)
            if not shape.aligned or any(old_values(metadata.metadata)):
                continue
            columns = bulk_columns(metadata, rest, shape.arrow, with_nan=shape.floats, which=shape.which)
            if columns is None:
                continue
            for number, json_string in zip(numbers, bulk_statistics(columns, table, numbers), strict=True):
                if json_string is not None:
                    yield Footer(
                        ends[number].key, int(table.rows[number]), shape.schema_json, json_string, shape.shredded
                    )

    @contextmanager
    def _damage(self, key: str) -> Iterator[None]:
        where = f"{self.store.uri}/{key}"
        try:
            yield
        except ObjectNotFoundError as e:
            raise MissingFileError("a file disappeared during the conversion", file=where) from e
        except (*DAMAGE, OSError) as e:
            if isinstance(e, TrilakeError):
                raise
            if isinstance(e, pa.ArrowNotImplementedError):
                raise unreadable(e, file=where) from e
            raise CorruptFileError(
                f"this is not a Parquet file: {e}",
                help="move it out of the folder, or give it a name that begins with '_' or '.', then convert again",
                file=where,
            ) from e


class _End(NamedTuple):
    """The footer of a file; empty if the footer is large or not where it should be."""

    key: str
    size: int
    remote: bool
    footer: bytes = b""

    def opened(self, store: Store) -> pa.NativeFile:
        """The bytes in which Arrow opens the footer."""
        if not self.footer:
            return store.open_input(self.key)
        return pa.BufferReader(b"".join((self.footer, len(self.footer).to_bytes(4, "little"), b"PAR1")))


@dataclass(frozen=True)
class _Shape:
    """The columns of a file, with results that all files with the same columns share."""

    parquet: pq.ParquetSchema
    notes: Mapping[bytes, bytes]
    schema_json: str
    arrow: pa.Schema
    floats: frozenset[tuple[str, ...]]
    which: StatisticsPlan
    #: Whether the columns match those of the footer one by one, so that statistics can be assigned.
    aligned: bool
    #: Whether variants are shredded.
    shredded: bool

    @classmethod
    def of(cls, file: pq.ParquetFile, where: str, configuration: Mapping[str, str]) -> _Shape:
        schema = _columns(file, where)
        pairs = zip(schema.to_arrow_schema(), file.schema_arrow, schema.fields, strict=True)
        arrow = pa.schema([stored if needs_mark(f.type) else plain for plain, stored, f in pairs])
        paths = leaf_paths(arrow)
        floats = frozenset(float_paths(arrow))
        which = StatisticsPlan.of(configuration, schema)
        aligned = len(paths) == file.metadata.num_columns
        shredded = any(is_shredded(t) for column in arrow.types for t in arrow_types_in(column))
        return cls(file.schema, _notes(file), schema.json(), arrow, floats, which, aligned, shredded)

    def is_of(self, file: pq.ParquetFile) -> bool:
        return bool(self.parquet.equals(file.schema)) and self.notes == _notes(file)

    def stats(self, metadata: pq.FileMetaData, rebasing: Rebasing | None) -> str:
        """The statistics of a file for the log."""
        if not self.aligned:
            return f'{{"numRecords":{metadata.num_rows}}}'
        which = self.which
        if rebasing is not None:
            paths = leaf_paths(self.arrow)
            doubtful = (paths[i] for i in rebasing.doubtful(metadata))
            which = replace(which, unbounded=frozenset(p for p in doubtful if p is not None))
        return file_statistics(metadata, stated_columns(self.arrow, which), self.floats)


def _notes(file: pq.ParquetFile) -> dict[bytes, bytes]:
    """What a footer says about its columns in addition to their Parquet types."""
    notes = dict(file.metadata.metadata or ())
    return {k: notes[k] for k in (_SPARK_SCHEMA, b"ARROW:schema") if k in notes}


def _columns(file: pq.ParquetFile, where: str) -> StructType:
    file_schema, leaves = file.schema_arrow, [file.metadata.schema.column(i) for i in range(file.metadata.num_columns)]
    noted = _notes(file).get(_SPARK_SCHEMA, b"")
    groups = variant_groups(file.metadata) if any(leaf.path.endswith(".metadata") for leaf in leaves) else frozenset()
    if groups or b'"variant"' in noted:
        file_schema = pa.schema([f.with_type(mapped(f.type, _without_parts)) for f in file_schema])
        tops = {leaf.path.removesuffix("metadata") + "typed_value" for leaf in leaves if leaf.name == "metadata"}
        leaves = [leaf for leaf in leaves if not any(f"{leaf.path}.".startswith(f"{top}.") for top in tops)]
    try:
        schema = from_arrow(file_schema)
    except SchemaMismatchError as e:
        raise SchemaMismatchError(e.message, help=e.help, **{**e.context, "file": where}) from e
    for leaf in leaves:
        logical = str(leaf.logical_type)
        if "nanoseconds" in logical or logical.startswith(("Float16", "UUID")):  # Spark reads none of them
            raise SchemaMismatchError(
                f"column {leaf.path} has the Parquet type {logical}, which Delta does not support",
                help="rewrite the file with timestamps in microseconds, 32-bit floats, or UUIDs as strings",
                column=leaf.path,
                file=where,
            )
    schema = _struct(_instants(schema, iter([leaf.physical_type for leaf in leaves])))
    schema = _struct(_variants(schema, iter([leaf.path for leaf in leaves]), groups)) if groups else schema
    try:
        spark = parse_schema(noted.decode())
    except (TrilakeError, UnicodeDecodeError):  # a type of a later Spark, or a user-defined type
        return schema
    return spark if noted and _fits(spark, schema) else schema


def _struct(t: DataType) -> StructType:
    assert isinstance(t, StructType)
    return t


def _instants(t: DataType, physical: Iterator[str]) -> DataType:
    """The type with instants for Parquet's legacy INT96, whose zone no footer states."""

    def instant(t: DataType) -> DataType:
        old = isinstance(t, PrimitiveType) and next(physical, "") == "INT96"
        return PrimitiveType("timestamp") if old else t

    return each_type(t, instant)


def _without_parts(t: pa.DataType) -> pa.DataType:
    """The type of a shredded variant column without its typed parts."""
    is_variant = is_shredded(t) and t.get_field_index("metadata") >= 0
    return pa.struct([f for f in t if f.name != "typed_value"]) if is_variant else t


def _variants(t: DataType, paths: Iterator[str], groups: Set[str]) -> DataType:
    """The type with the variants that the footer declares; ``paths`` are the paths of the leaves, in order."""
    if _is_variant(t):
        inside = {next(paths).rpartition(".")[0] for _ in parts(t)}
        return PrimitiveType("variant") if inside <= groups else t
    if isinstance(t, PrimitiveType):
        next(paths)
    return with_parts(t, [_variants(part, paths, groups) for _, part in parts(t)])


def _is_variant(t: DataType) -> bool:
    """Whether a struct has the fields of a variant, ignoring those of shredding."""
    plain = isinstance(t, StructType) and not any(parts(inner) for _, inner in parts(t))
    return plain and {"metadata"} <= {name for name, _ in parts(t)} <= {"metadata", "value"}


def _fits(noted: DataType, actual: DataType) -> bool:
    """Whether columns may have the types that Spark recorded: compares only names, nesting and variants."""
    if isinstance(noted, StructType) and isinstance(actual, StructType):
        return noted.names == actual.names and all(
            _fits(a.type, b.type) for a, b in zip(noted.fields, actual.fields, strict=True)
        )
    pairs = paired(noted, actual)
    if pairs is not None:
        return all(_fits(a, b) for _, a, b in pairs)
    if str(noted) == "variant":
        return _is_variant(actual) or str(actual) == "variant"
    return isinstance(noted, PrimitiveType) and isinstance(actual, PrimitiveType)


def merged_schema(schemas: Sequence[tuple[str, StructType]]) -> StructType:
    """The columns of all files, each nullable, matched by name, ignoring case.

    A column of several small integer types, which Parquet stores alike, has the widest.  Raises
    ``SchemaMismatchError`` if a column has two other types.
    """
    merged = StructType(())
    for file, schema in schemas:
        _check_names(schema, file)
        merged = _merge_structs(merged, schema, "", file)
    return merged.nullable


#: Parquet stores them as INT32, so a column may be read with a wider type than a file has.
_SMALL_INTEGERS = ("byte", "short", "integer")


def _check_names(t: DataType, file: str) -> None:
    for path, struct in types_in(t):
        names = [name.lower() for name, _ in parts(struct)]
        twice = [name for name, _ in parts(struct) if names.count(name.lower()) > 1]
        if twice:
            raise SchemaMismatchError(
                f"the file has columns {', '.join('.'.join((*path, n)) for n in twice)}, which differ only in case",
                help="rewrite the file with different names",
                file=file,
                condition="DELTA_DUPLICATE_COLUMNS_FOUND",
            )


def _merge_structs(a: StructType, b: StructType, path: str, file: str) -> StructType:
    others = {f.name.lower(): f for f in b.fields}
    fields: list[StructField] = []
    for f in a.fields:
        other = others.pop(f.name.lower(), None)
        fields.append(f if other is None else replace(f, type=_merge(f.type, other.type, f"{path}{f.name}.", file)))
    return StructType((*fields, *others.values()))


def _merge(a: DataType, b: DataType, path: str, file: str) -> DataType:
    if isinstance(a, StructType) and isinstance(b, StructType):
        return _merge_structs(a, b, path, file)
    inside = paired(a, b)
    if inside is not None:
        return with_parts(a, [_merge(x, y, f"{path}{name}.", file) for name, x, y in inside])
    if a == b or (isinstance(b, PrimitiveType) and b.name == "void"):
        return a
    if isinstance(a, PrimitiveType) and a.name == "void":
        return b
    if str(a) in _SMALL_INTEGERS and str(b) in _SMALL_INTEGERS:
        return max(a, b, key=lambda t: _SMALL_INTEGERS.index(str(t)))
    raise SchemaMismatchError(
        f"the schemas of the files do not match: column {path.rstrip('.')} is {a} in other files and {b} in this one",
        help="rewrite the files with one type, or convert them separately",
        column=path.rstrip("."),
        file=file,
        condition="DELTA_FAILED_MERGE_SCHEMA_FILE",
    )
