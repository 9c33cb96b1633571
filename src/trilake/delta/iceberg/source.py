"""An Iceberg table in Delta's terms: schema with ids, live files, partitions, bounds and deleted rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import IdentityTransform
from pyroaring import BitMap64

from trilake.delta.iceberg.avro import DamagedFileError, foreign_records
from trilake.delta.iceberg.schema import PRIMITIVES
from trilake.delta.protocol.schema import (
    COLUMN_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from trilake.errors import CorruptFileError, InvalidArgumentError, MissingFileError, SchemaMismatchError
from trilake.parquet.files import DAMAGE, unreadable
from trilake.storage.base import Store

#: Several Delta types have the Iceberg type int; the last one, integer, counts.
_NAMES = {type(iceberg): name for name, iceberg in PRIMITIVES.items()}
#: Iceberg's table property for files whose columns have no ids and are matched by name.
_BY_NAME = "schema.name-mapping.default"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_POSITIONS, _EQUALITY = 1, 2
_DELETED = 2
#: Footers read at once.
_AT_ONCE = 64


class LiveFile(NamedTuple):
    """A data file: its key in the table's folder, and the fields of its ``add`` action."""

    key: str
    size: int
    partition: dict[str, str | None]
    stats: str
    deleted: BitMap64 | None
    rows: int


@dataclass
class IcebergSource:
    """The current snapshot of an Iceberg table, read from the bytes of its metadata file.

    Raises ``InvalidArgumentError`` for features, named in the message, that a Delta table cannot have,
    ``SchemaMismatchError`` for types that Delta lacks, and ``CorruptFileError`` for damaged metadata.
    """

    store: Store
    key: str
    content: bytes
    metadata: TableMetadata = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.metadata = TableMetadataUtil.parse_raw(self.content.decode())
        except (ValueError, ValidationError) as e:
            raise CorruptFileError(f"this is not Iceberg metadata: {e}", file=self._uri(self.key)) from e
        if self.metadata.format_version > 2:
            raise self._rejected(f"format version {self.metadata.format_version} of Iceberg")
        if _BY_NAME in self.metadata.properties:
            raise self._rejected("an Iceberg table with a name mapping, whose files have no field ids,")

    def schema(self) -> StructType:
        """The schema: columns have Iceberg's ids, and their current names as physical names."""
        return StructType(tuple(map(_field, self.metadata.schema().fields)))

    def partition_columns(self) -> list[str]:
        """The columns of identity transforms; the columns of other transforms are in the files."""
        live = {m["partition_spec_id"] for m in self._manifests if not m.get("content") and _has_files(m)}
        live_specs = [spec for i, spec in self.metadata.specs().items() if i in live] or [self.metadata.spec()]
        specs = [[f.source_id for f in s.fields if isinstance(f.transform, IdentityTransform)] for s in live_specs]
        if len({frozenset(ids) for ids in specs}) > 1:
            raise self._rejected("a table whose files have several partition specs")
        return [self.metadata.schema().find_column_name(i) or "" for i in specs[-1]]

    def files(self) -> list[LiveFile]:
        """The live data files."""
        data, deletes = self._entries()
        vectors = self._vectors(data, deletes)
        columns = [self.metadata.schema().find_field(name) for name in self.partition_columns()]
        fields = [f for f in self.metadata.schema().fields if isinstance(f.field_type, types.PrimitiveType)]
        live = []
        for entry in data:
            file, key = entry.file, self._key(entry.file["file_path"])
            deleted = vectors.get(key)
            if deleted is not None and len(deleted) >= file["record_count"]:
                continue
            stated = zip(entry.spec.fields, file["partition"].values(), strict=True)
            values = {f.source_id: value for f, value in stated if isinstance(f.transform, IdentityTransform)}
            partition = {c.name: self._partition_string(c, values.get(c.field_id)) for c in columns}
            stats = _statistics(file, [f for f in fields if f.name not in partition])
            live.append(LiveFile(key, file["file_size_in_bytes"], partition, stats, deleted, file["record_count"]))
        return live

    def _entries(self) -> tuple[list[_Entry], list[_Entry]]:
        data: list[_Entry] = []
        deletes: list[_Entry] = []
        for manifest in self._manifests:
            sequence = manifest.get("sequence_number") or 0
            spec = self.metadata.specs()[manifest["partition_spec_id"]]
            for entry in self._avro(manifest["manifest_path"]):
                if entry["status"] == _DELETED:
                    continue
                file, sequence_number = entry["data_file"], entry.get("sequence_number")
                content = file.get("content") or 0
                if content == _EQUALITY:
                    raise self._rejected("a table with equality deletes")
                if file["file_format"].upper() != "PARQUET":
                    raise self._rejected(f"a file of format {file['file_format']}, {file['file_path']},")
                (deletes if content == _POSITIONS else data).append(_Entry(file, sequence_number or sequence, spec))
        return data, deletes

    @property
    def _manifests(self) -> list[dict[str, Any]]:
        snapshot = self.metadata.current_snapshot()
        if snapshot is None:
            return []
        if not snapshot.manifest_list:
            raise self._rejected("a snapshot without a manifest list")
        return self._avro(snapshot.manifest_list)

    def _vectors(self, data: Sequence[_Entry], deletes: Sequence[_Entry]) -> dict[str, BitMap64]:
        sequences = {self._key(e.file["file_path"]): e.sequence for e in data}
        vectors: dict[str, BitMap64] = {}
        for delete in deletes:
            for path, rows in self._positions(delete.file["file_path"]):
                key = self._key(path)
                # A delete file applies only to files that existed before it.
                if sequences.get(key, delete.sequence + 1) <= delete.sequence:
                    vectors[key] = vectors.get(key, BitMap64()) | rows
        return vectors

    def _positions(self, path: str) -> Iterator[tuple[str, BitMap64]]:
        content = self.store.read(self._key(path))
        try:
            table = pq.read_table(pa.BufferReader(content), columns=["file_path", "pos"])
        except (pa.ArrowException, OSError) as e:
            raise CorruptFileError(f"the position deletes cannot be read: {e}", file=path) from e
        encoded = table["file_path"].combine_chunks().dictionary_encode()
        indices, positions = encoded.indices.to_numpy(), table["pos"].to_numpy()
        for i, name in enumerate(encoded.dictionary.to_pylist()):
            yield name, BitMap64(positions[np.flatnonzero(indices == i)].astype(np.uint64))

    def _avro(self, path: str) -> list[dict[str, Any]]:
        try:
            return foreign_records(bytes(self.store.read(self._key(path))))
        except DamagedFileError as e:
            raise CorruptFileError(f"the manifest cannot be read: {e}", file=path) from e

    def _key(self, path: str) -> str:
        """The key of a file in the table's folder, whose path may be written in several ways."""
        for root in (self.metadata.location, self.store.uri):
            plain, inside = _plain(root).rstrip("/") + "/", _plain(path)
            if inside.startswith(plain):
                return inside.removeprefix(plain)
        raise self._rejected(f"a table with a file outside its folder, {path},")

    def _partition_string(self, column: types.NestedField, value: Any) -> str | None:
        if value == "":
            raise self._rejected(f"an empty string in the partition column {column.name!r}, which Delta reads as null,")
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, dt.datetime):
            zone = "Z" if isinstance(column.field_type, types.TimestamptzType) else ""
            return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + zone
        if isinstance(value, bytes):
            raise self._rejected(f"the binary partition column {column.name!r}")
        return format(value, "f") if isinstance(value, Decimal) else str(value)

    def _rejected(self, what: str) -> InvalidArgumentError:
        help = "write its rows to a Delta table instead, for example with pyiceberg and trilake.write"
        return InvalidArgumentError(f"{what} cannot be converted to Delta in place", help=help, file=self.store.uri)

    def _uri(self, key: str) -> str:
        return f"{self.store.uri}/{key}"

    def times(self, files: Sequence[LiveFile]) -> dict[str, int]:
        """The modification times of files in ms; checks their footers: columns without ids would read as nulls."""
        times = {m.key: m.modified_ms for m in self.store.list()}
        for file in files:
            if file.key not in times:
                raise MissingFileError("a data file of the Iceberg table is missing", file=self._uri(file.key))
        for i in range(0, len(files), _AT_ONCE):
            self.store.at_once([partial(self._check_footer, file) for file in files[i : i + _AT_ONCE]])
        return times

    def _check_footer(self, file: LiveFile) -> None:
        try:
            with self.store.open_input(file.key) as source:
                footer = pq.read_metadata(source)
                fields = footer.schema.to_arrow_schema()
        except DAMAGE as e:
            raise unreadable(e, file=self._uri(file.key)) from e
        if footer.num_rows != file.rows:
            message = f"the file has {footer.num_rows} rows, but the Iceberg manifest says {file.rows}"
            raise CorruptFileError(message, file=self._uri(file.key))
        if any(b"PARQUET:field_id" not in (f.metadata or {}) for f in fields):
            raise self._rejected(f"a file whose columns have no field ids, {file.key},")


class _Entry(NamedTuple):
    file: dict[str, Any]
    sequence: int
    spec: PartitionSpec


def iceberg_source(store: Store) -> IcebergSource | None:
    """The Iceberg table in a folder; ``None`` without one.  Raises ``InvalidArgumentError`` for two newest versions."""
    keys = metadata_files(store)
    if not keys:
        return None
    newest = max(keys.values())
    candidates = [key for key, number in keys.items() if number == newest]
    if len(candidates) > 1:
        message = f"the Iceberg table has several newest metadata files: {', '.join(sorted(candidates))}"
        raise InvalidArgumentError(message, help="delete those that no catalog references", file=store.uri)
    return IcebergSource(store, candidates[0], bytes(store.read(candidates[0])))


def metadata_files(store: Store) -> dict[str, int]:
    """The metadata files in a folder and their numbers."""
    matches = ((m.key, _METADATA_FILE.fullmatch(m.key)) for m in store.list("metadata"))
    return {key: int(match[1]) for key, match in matches if match}


_METADATA_FILE = re.compile(r"metadata/v?(\d+)(?:-[^/]*)?\.metadata\.json")


def _has_files(manifest: Mapping[str, Any]) -> bool:
    # Version 1 names them added_data_files_count, and may omit them.
    counts = [manifest.get(f"{s}_{n}") for s in ("added", "existing") for n in ("files_count", "data_files_count")]
    return any(counts) or all(c is None for c in counts)


def _field(source: types.NestedField) -> StructField:
    metadata = {COLUMN_ID: source.field_id, PHYSICAL_NAME: source.name}
    return StructField(source.name, _type(source.field_type, source.name), not source.required, metadata)


def _type(source: types.IcebergType, column: str) -> DataType:
    if isinstance(source, types.StructType):
        return StructType(tuple(map(_field, source.fields)))
    if isinstance(source, types.ListType):
        return ArrayType(_type(source.element_type, column), not source.element_required)
    if isinstance(source, types.MapType):
        value = _type(source.value_type, column)
        return MapType(_type(source.key_type, column), value, not source.value_required)
    if isinstance(source, types.DecimalType):
        return PrimitiveType(f"decimal({source.precision},{source.scale})")
    name = _NAMES.get(type(source)) if isinstance(source, types.PrimitiveType) else None
    if name is None:
        raise SchemaMismatchError(
            f"column {column!r} has the Iceberg type {source}, which Delta does not support", column=column
        )
    return PrimitiveType(name)


def _statistics(file: Mapping[str, Any], fields: Sequence[types.NestedField]) -> str:
    def by_id(name: str) -> dict[int, Any]:
        return {item["key"]: item["value"] for item in file.get(name) or ()}

    nulls, nans = by_id("null_value_counts"), by_id("nan_value_counts")
    stats: dict[str, Any] = {"numRecords": file["record_count"], "minValues": {}, "maxValues": {}, "nullCount": {}}
    for side, name in (("minValues", "lower_bounds"), ("maxValues", "upper_bounds")):
        bounds = by_id(name)
        for f in fields:
            type_ = f.field_type
            # A NaN is greater than every bound.
            unsafe = isinstance(type_, types.FloatType | types.DoubleType) and nans.get(f.field_id) != 0
            if f.field_id in bounds and not unsafe and isinstance(type_, types.PrimitiveType):
                value = _plain_value(type_, from_bytes(type_, bounds[f.field_id]))
                if value is not None:
                    stats[side][f.name] = value
    stats["nullCount"] = {f.name: nulls[f.field_id] for f in fields if f.field_id in nulls}
    json_string = orjson.dumps(stats, default=lambda d: orjson.Fragment(format(d, "f").encode()))
    return json_string.decode()


def _plain_value(type_: types.PrimitiveType, value: Any) -> Any:
    if isinstance(type_, types.BinaryType | types.BooleanType):
        return None
    try:
        if isinstance(type_, types.DateType):
            return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
        if isinstance(type_, types.TimestamptzType | types.TimestampType):
            # Rounded down to milliseconds, as Delta writers do.
            moment = _EPOCH + dt.timedelta(milliseconds=value // 1000)
            zone = "Z" if isinstance(type_, types.TimestamptzType) else ""
            return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}{zone}"
    except OverflowError:
        return None
    return value


def _plain(path: str) -> str:
    """A path in one form: without the differences between spellings of the same place."""
    if path.startswith(("file:", "/")):
        return "/" + path.removeprefix("file:").lstrip("/")
    return re.sub(r"^s3[an]:", "s3:", path)
