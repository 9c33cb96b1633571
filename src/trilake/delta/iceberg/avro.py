"""Avro files of Iceberg metadata, in blocks that can be copied: the container here, records by fastavro.

pyiceberg's own writer resolves the schema for each file, and its decoder (0.12) rounds doubles to 32 bits.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
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

try:
    import fastavro
except ImportError:
    raise missing("fastavro", "Iceberg metadata of Delta tables", "iceberg") from None

_HEADER = fastavro.parse_schema({"type": "map", "values": "bytes"})
_ERRORS = (EOFError, ValueError, LookupError, TypeError, ArithmeticError, zlib.error)
_SYNC = b"trilake-manifest"


class DamagedFileError(Exception):
    """A file of the metadata is not the Avro file that it should be."""


class Coder(NamedTuple):
    """A kind of records: the header's metadata, and the schema as fastavro wants it."""

    meta: Mapping[str, bytes]
    schema: Any

    def block(self, records: Iterable[Mapping[str, Any]]) -> bytes:
        """A block of records, without the marker that ends it."""
        out, count = BytesIO(), 0
        for record in records:
            fastavro.schemaless_writer(out, self.schema, record)
            count += 1
        # A small window costs less to set up.
        squeezed = zlib.compressobj(wbits=-12 if out.tell() < 4096 else -15)
        data = squeezed.compress(out.getbuffer()) + squeezed.flush()
        return _long(count) + _long(len(data)) + data

    def file(self, blocks: Iterable[bytes], more: Mapping[str, str] | None = None) -> bytes:
        """A file of blocks; ``more`` are further entries of its header."""
        out = BytesIO()
        meta = {**self.meta, "avro.codec": b"deflate", **{k: v.encode() for k, v in (more or {}).items()}}
        fastavro.schemaless_writer(out, _HEADER, meta)
        return _SYNC.join((b"Obj\x01" + out.getvalue(), *blocks, b""))


def read(content: bytes) -> tuple[Coder, list[dict[str, Any]]]:
    """The records of a file, and what writes such records again.  Raises ``DamagedFileError``."""
    try:
        reader = fastavro.reader(BytesIO(content))
        records: list[Any] = list(reader)
        meta = {k: v.encode() for k, v in reader.metadata.items()}
        return Coder(meta, fastavro.parse_schema(json.loads(reader.metadata["avro.schema"]))), records
    except _ERRORS as e:
        raise DamagedFileError(f"not an Avro file: {e}") from e


def inflated(content: bytes) -> bytes:
    """The bytes of a file's records.  Raises ``DamagedFileError``."""
    try:
        blocks: Any = fastavro.block_reader(BytesIO(content))
        return b"".join(b.bytes_.getvalue() for b in blocks)
    except _ERRORS as e:
        raise DamagedFileError(f"not an Avro file: {e}") from e


@lru_cache(maxsize=1)
def manifest_lists() -> Coder:
    """Manifest lists of format version 2."""
    return _coder(MANIFEST_LIST_FILE_SCHEMAS[2], "manifest_file", {"format-version": "2"})


def manifests(schema: Schema, spec: PartitionSpec) -> Coder:
    """Manifests of data files."""
    entry = manifest_entry_schema_with_data_file(2, data_file_with_partition(spec.partition_type(schema), 2))
    meta = {
        "schema": schema.model_dump_json(),
        "partition-spec": json.dumps([f.model_dump(by_alias=True, mode="json") for f in spec.fields]),
        "partition-spec-id": str(spec.spec_id),
        "format-version": "2",
        "content": "data",
    }
    return _coder(entry, "manifest_entry", meta)


def _long(number: int) -> bytes:
    """A count as Avro writes it: seven bits a byte, doubled since it might be negative."""
    out, rest = bytearray(), number << 1
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _coder(schema: Schema, name: str, meta: Mapping[str, str]) -> Coder:
    avro = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)
    encoded = {k: v.encode() for k, v in {**meta, "avro.schema": json.dumps(avro)}.items()}
    return Coder(encoded, fastavro.parse_schema(avro))
