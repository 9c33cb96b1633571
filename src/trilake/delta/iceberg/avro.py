"""Avro files of Iceberg metadata: containers whose blocks can be copied, and manifest entries that stay encoded."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any, NamedTuple

from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from trilake.common.extras import missing
from trilake.parquet.thrift import unsigned, zigzag

try:
    import fastavro
except ImportError:
    raise missing("fastavro", "Iceberg metadata of Delta tables", "iceberg") from None

_HEADER = fastavro.parse_schema({"type": "map", "values": "bytes"})
_ERRORS = (EOFError, ValueError, LookupError, TypeError, ArithmeticError, zlib.error)
_MAGIC, _LARGEST = b"Obj\x01", 1 << 28
_SYNC = b"trilake-manifest"
#: Smaller blocks are stored uncompressed, since compression would take longer than writing them.
_STORED = 512
_NULL, _PRESENT = b"\x00", b"\x02"
_CODEC = b"\x14avro.codec\x0edeflate"


class DamagedFileError(Exception):
    """A metadata file is not a valid Avro file."""


def block(count: int, data: bytes) -> bytes:
    """A block of encoded records, without the marker that ends it."""
    if len(data) < _STORED:
        squeezed = b"\x01" + struct.pack("<HH", len(data), ~len(data) & 0xFFFF) + data
    else:
        squeezed = zlib.compress(data, wbits=-15)
    return _long(count) + _long(len(squeezed)) + squeezed


def pairs(meta: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """The names and values of a file's header, encoded."""
    return tuple(_string(key) + _long(len(value)) + value for key, value in meta.items())


def container(header: Sequence[bytes], blocks: Iterable[bytes]) -> bytes:
    """An Avro file with these blocks."""
    return _SYNC.join((b"".join((_MAGIC, _long(len(header) + 1), *header, _CODEC, _NULL)), *blocks, b""))


class Entry(NamedTuple):
    """A manifest entry; its data file stays encoded."""

    status: int
    snapshot_id: int | None
    sequence: int | None
    file_sequence: int | None
    path: str
    rows: int
    data_file: bytes

    def encoded(self) -> bytes:
        return self._head() + self.data_file

    def _head(self) -> bytes:
        ids = (self.snapshot_id, self.sequence, self.file_sequence)
        return _long(self.status) + b"".join(_NULL if n is None else _PRESENT + _long(n) for n in ids)


class File:
    """An Avro file whose records are parsed on demand.  Opening and parsing it may raise ``DamagedFileError``."""

    def __init__(self, content: bytes) -> None:
        stream = BytesIO(content)
        try:
            if stream.read(4) != _MAGIC:
                raise DamagedFileError("it is not an Avro file")
            meta: Any = fastavro.schemaless_reader(stream, _HEADER, None)
            self.schema: str = meta["avro.schema"].decode()
            sync, self._squeezed = stream.read(16), meta.get("avro.codec") == b"deflate"
            self._stored: list[tuple[int, bytes]] = []
            while stream.tell() < len(content):
                count, size = _read_long(stream), _read_long(stream)
                data = stream.read(size)
                if stream.read(16) != sync:
                    raise DamagedFileError("a block of the Avro file is cut off")
                self._stored.append((count, data))
        except _ERRORS as e:
            raise DamagedFileError(f"not an Avro file: {e}") from e
        self.header = pairs({k: v for k, v in meta.items() if k != "avro.codec"})

    @cached_property
    def blocks(self) -> list[tuple[int, bytes]]:
        """The number of records and the bytes of each block."""
        return [(count, _inflated(data)) for count, data in self._stored] if self._squeezed else self._stored

    def without(self, other: File) -> File:
        """The file without the blocks that ``other`` has, too."""
        left, shared = copy(self), set(other._stored)
        left._stored = [block for block in self._stored if block not in shared]
        return left

    def records(self) -> list[dict[str, Any]]:
        """The records, with all fields."""
        return [record for record, _ in self._read(None)]

    def entries(self) -> list[Entry]:
        """The entries of a manifest."""
        entries = []
        for record, data in self._read(_projected(self.schema)):
            names = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
            file = record["data_file"]
            status, *ids = (record[name] for name in names)
            entry = Entry(status, ids[0], ids[1], ids[2], file["file_path"], file["record_count"], data)
            entries.append(entry._replace(data_file=data[len(entry._head()) :]))
        return entries

    def _read(self, projected: Any) -> Iterable[tuple[dict[str, Any], bytes]]:
        records: list[tuple[Any, bytes]] = []
        try:
            schema = _parsed(self.schema)
            for count, data in self.blocks:
                stream, start = BytesIO(data), 0
                for _ in range(count):
                    record = fastavro.schemaless_reader(stream, schema, projected)
                    end = stream.tell()
                    records.append((record, data[start:end]))
                    start = end
        except _ERRORS as e:
            raise DamagedFileError(f"not an Avro file: {e}") from e
        return records


def foreign_records(content: bytes) -> list[dict[str, Any]]:
    """The records of a file by another writer, with any codec.  Raises ``DamagedFileError``."""
    try:
        records: list[Any] = list(fastavro.reader(BytesIO(content)))
    except _ERRORS as e:
        raise DamagedFileError(f"not an Avro file: {e}") from e
    return records


class ManifestSchema:
    """The Avro schema of manifests of data files, for one table schema and partition spec."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        entry = manifest_entry_schema_with_data_file(2, data_file_with_partition(spec.partition_type(schema), 2))
        avro: Any = AvroSchemaConversion().iceberg_to_avro(entry, schema_name="manifest_entry")
        self.schema = json.dumps(avro)
        self.partition: Any = fastavro.parse_schema(_field(_field(avro, "data_file")["type"], "partition")["type"])
        meta = {
            "schema": schema.model_dump_json().encode(),
            "partition-spec": json.dumps([f.model_dump(by_alias=True, mode="json") for f in spec.fields]).encode(),
            "partition-spec-id": str(spec.spec_id).encode(),
            "format-version": b"2",
            "content": b"data",
            "avro.schema": self.schema.encode(),
        }
        self.header = pairs(meta)

    @cached_property
    def _names(self) -> list[str]:
        return [f["name"] for f in self.partition["fields"]]

    def data_files(self, files: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """Encode data files; each partition is a tuple."""
        partitions = {"()": b""}  # by value; a record without fields takes no bytes
        encoded = []
        for file in files:
            key = repr(file["partition"])
            partition = partitions.get(key)
            if partition is None:
                out = BytesIO()
                fastavro.schemaless_writer(out, self.partition, dict(zip(self._names, file["partition"], strict=True)))
                partition = partitions[key] = out.getvalue()
            encoded.append(_data_file(file, partition))
        return encoded


@lru_cache(maxsize=1)
def _manifest_lists() -> tuple[tuple[bytes, ...], Any]:
    avro = AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[2], schema_name="manifest_file")
    return pairs({"format-version": b"2", "avro.schema": json.dumps(avro).encode()}), fastavro.parse_schema(avro)


def manifest_block(manifests: Sequence[Mapping[str, Any]]) -> bytes:
    """A block of a manifest list."""
    out, schema = BytesIO(), _manifest_lists()[1]
    for manifest in manifests:
        fastavro.schemaless_writer(out, schema, manifest)
    return block(len(manifests), out.getvalue())


def manifest_list(meta: Mapping[str, str], blocks: Iterable[bytes]) -> bytes:
    """A manifest list of format version 2."""
    return container((*pairs({k: v.encode() for k, v in meta.items()}), *_manifest_lists()[0]), blocks)


def _data_file(file: Mapping[str, Any], partition: bytes) -> bytes:
    """Encode a data file: the fields of format version 2, in order, without column sizes and NaN counts."""
    return b"".join(
        (
            _NULL,  # content: data
            _string(file["file_path"]),
            _string(file["file_format"]),
            partition,
            _long(file["record_count"]),
            _long(file["file_size_in_bytes"]),
            _NULL,
            _map((n["key"], _long(n["value"])) for n in file["value_counts"]),
            _map((n["key"], _long(n["value"])) for n in file["null_value_counts"]),
            _NULL,
            _map((n["key"], _long(len(n["value"])) + n["value"]) for n in file["lower_bounds"]),
            _map((n["key"], _long(len(n["value"])) + n["value"]) for n in file["upper_bounds"]),
            _NULL * 4,
        )
    )


def _map(items: Iterable[tuple[int, bytes]]) -> bytes:
    pairs = [_long(key) + value for key, value in items]
    return _PRESENT + (_long(len(pairs)) + b"".join(pairs) if pairs else b"") + _NULL


def _string(value: str) -> bytes:
    data = value.encode()
    return _long(len(data)) + data


@lru_cache(maxsize=4096)
def _long(number: int) -> bytes:
    return unsigned(zigzag(number))


def _read_long(stream: BytesIO) -> int:
    number = shift = 0
    while True:
        byte = stream.read(1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            return (number >> 1) ^ -(number & 1)


def _inflated(data: bytes) -> bytes:
    stream = zlib.decompressobj(-15)
    try:
        out = stream.decompress(data, _LARGEST)
    except zlib.error as e:
        raise DamagedFileError(f"not an Avro file: {e}") from e
    if stream.unconsumed_tail:
        raise DamagedFileError(f"a block of the Avro file is larger than {_LARGEST} bytes")
    return out


@lru_cache(maxsize=64)
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


@lru_cache(maxsize=64)
def _projected(schema: str) -> Any:
    """The schema of a manifest with only the fields of :class:`Entry`."""
    avro = json.loads(schema)
    data_file = _field(avro, "data_file")["type"]
    data_file["fields"] = [_field(data_file, "file_path"), _field(data_file, "record_count")]
    return fastavro.parse_schema(avro)


def _field(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    field: dict[str, Any] = next(f for f in record["fields"] if f["name"] == name)
    return field
