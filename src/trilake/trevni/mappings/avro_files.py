"""Convert Avro data files to Trevni files and back, in the layout of :mod:`trilake.trevni.mappings.avro`.

fastavro decodes the records, but this module reads the container, for two reasons: errors have file and offset, and the
branch of an ambiguous value of a union (``["float", "double"]``) is preserved.  For the latter, the decoder gets a
schema in which such branches are records with one field, which are encoded in the same bytes.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError, UnsupportedProtocolError
from trilake.storage import Store
from trilake.trevni.blocks.codecs import snappy_size
from trilake.trevni.blocks.cursor import Cursor, NeedMoreBytes
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import RESERVED
from trilake.trevni.blocks.source import Source, locate, open_source
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.avro import SCHEMA_KEY, read_avro, read_schema, write_avro
from trilake.trevni.mappings.avro_schema import AvroSchema, SchemaLike, fastavro, with_named_branches

_MAGIC = b"Obj\x01"
#: Codecs of Avro files that can be read, and those that can be written.
READ_CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
WRITE_CODECS = ("null", "deflate", "bzip2", "xz")
#: Bytes to read first for a header, and for the numbers before a block.
_HEADER, _NUMBERS = 1 << 16, 20
_DAMAGED = (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError)


class AvroFile:
    """An Avro data file opened for reading (Avro 1.x, "Object Container Files").

    Raises ``ObjectNotFoundError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for an unknown codec.
    """

    def __init__(self, file: Any) -> None:
        self._source: Source = open_source(file)
        #: File metadata.
        self.metadata: dict[str, bytes] = {}
        self._start = self._read_header()
        try:
            #: Schema of the records.
            self.schema = AvroSchema(self.metadata["avro.schema"].decode())
        except (KeyError, UnicodeDecodeError, InvalidArgumentError) as e:
            raise self._fail(f"the schema of the file cannot be read: {e}", 4) from e
        self.codec = self.metadata.get("avro.codec", b"null").decode(errors="replace")
        if self.codec not in READ_CODECS:
            raise UnsupportedProtocolError(
                f"unknown Avro codec {self.codec!r}", help=f"expected one of {', '.join(READ_CODECS)}", file=self.uri
            )

    @property
    def uri(self) -> str:
        """Path or URI of the file."""
        return self._source.name

    def _fail(self, message: str, offset: int) -> CorruptFileError:
        return CorruptFileError(message, file=self.uri, offset=offset)

    def _read(self, start: int, length: int) -> bytes:
        data: bytes = self._source.read(start, min(length, self._source.size - start)).to_pybytes()
        return data

    def _read_header(self) -> int:
        size, length = self._source.size, _HEADER
        if self._read(0, min(4, size)) != _MAGIC:
            raise self._fail("this is not an Avro data file: it does not start with the bytes 'Obj\\x01'", 0)
        while True:
            cursor = Cursor(self._read(4, length), file=self.uri, base=4, limit=size - 4)
            try:
                self.metadata = dict(_pairs(cursor))
                self._sync = bytes(cursor.take(16, "the sync marker of the header"))
                return 4 + cursor.position
            except NeedMoreBytes:
                length *= 4

    def blocks(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the offset, the number of records and the bytes of each block."""
        at, size = self._start, self._source.size
        while at < size:
            cursor = Cursor(self._read(at, _NUMBERS), file=self.uri, base=at, limit=min(_NUMBERS, size - at))
            count, stored = cursor.varint("the count of a block", 64), cursor.varint("the size of a block", 64)
            start = at + cursor.position
            if count < 0 or not 0 <= stored <= size - start - 16:
                raise self._fail(f"a block claims {count} records in {stored} bytes", at)
            if self._read(start + stored, 16) != self._sync:
                raise self._fail("the sync marker after a block differs from the header's", start + stored)
            try:
                yield at, count, _decompress(self.codec, self._read(start, stored))
            except _DAMAGED as e:
                raise self._fail(f"a block of codec {self.codec} is damaged: {e}", start) from e
            at = start + stored + 16

    def records(self, *, named: bool = False) -> Iterator[Any]:
        """Yield the records in the form of fastavro; for ``named`` see ``write_avro``."""
        schema = with_named_branches(self.schema) if named else self.schema.root
        parsed = fastavro.parse_schema(schema)
        for at, count, data in self.blocks():
            stream = io.BytesIO(data)
            for _ in range(count):
                try:
                    record = fastavro.schemaless_reader(stream, parsed, None, return_named_type=named)
                except (EOFError, ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError) as e:
                    raise self._fail(f"a record is damaged: {e!r}", at) from e
                yield record
            if stream.tell() != len(data):
                raise self._fail(f"{len(data) - stream.tell()} bytes are left after a block's records", at)


def _pairs(cursor: Cursor) -> Iterator[tuple[str, bytes]]:
    """Yield the metadata of a header: blocks of pairs; after a negative count comes the size of the block."""
    while count := cursor.varint("the number of pairs in the metadata", 64):
        if count < 0:
            cursor.varint("the size of the metadata", 64)
        for _ in range(abs(count)):
            yield cursor.string("a key of the metadata"), cursor.bytes_("a value of the metadata")


def _decompress(codec: str, data: bytes) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            return zlib.decompress(data, -15)
        case "bzip2":
            return bz2.decompress(data)
        case "xz":
            return lzma.decompress(data)
        case "zstandard":
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return bytes(stream.read())
    # Snappy blocks are followed by a CRC.
    size = snappy_size(data)
    if size > 64 * len(data):
        raise ValueError(f"{len(data)} bytes cannot hold {size}")
    raw = pa.Codec("snappy").decompress(data[:-4], size).to_pybytes() if size else b""
    if zlib.crc32(raw) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum does not match the data")
    return raw


def from_avro(
    source: Any,
    target: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    codec: str | None = "snappy",
    checksum: str | None = "crc32",
    block_size: int = BLOCK_SIZE,
) -> int:
    """Convert an Avro data file to a Trevni file, and return the number of records.

    Parameters
    ----------
    source: anything that :class:`trilake.trevni.TrevniFile` opens.  Supported codecs are ``null``, ``deflate``,
        ``snappy``, ``bzip2``, ``xz`` and ``zstandard``.
    target: a path or URI, a pair ``(store, key)``, or a binary file object.

    The file metadata has the schema as ``avro.schema``, and the other metadata of the Avro file.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``CorruptFileError`` and ``UnsupportedProtocolError`` for the Avro file, and ``InvalidArgumentError`` for a
    schema that cannot be stored.

    >>> from io import BytesIO
    >>> import fastavro
    >>> avro, file = BytesIO(), BytesIO()
    >>> fastavro.writer(avro, {"type": "array", "items": "string"}, [["a", "b"], []])
    >>> from_avro(avro.getvalue(), file)
    2
    """
    file = AvroFile(source)
    metadata = {k: v for k, v in file.metadata.items() if not k.startswith(("avro.", RESERVED))}
    return write_avro(
        file.records(named=True),
        file.schema,
        target,
        codec=codec,
        checksum=checksum,
        metadata=metadata,
        block_size=block_size,
        named=True,
    )


def to_avro(
    source: Any,
    target: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    schema: SchemaLike | None = None,
    codec: str = "deflate",
) -> int:
    """Convert a Trevni file with a schema in ``avro.schema`` to an Avro data file, and return the number of records.

    Parameters
    ----------
    source: an open file, or anything that :class:`trilake.trevni.TrevniFile` opens.
    schema: a projection, see :func:`trilake.trevni.mappings.avro.read_avro`.
    target: a path or URI, a pair ``(store, key)``, or a binary file object.
    codec: ``null``, ``deflate``, ``bzip2`` or ``xz``.

    Raises ``SchemaMismatchError`` if the file does not match the schema, and ``CorruptFileError``.

    >>> from io import BytesIO
    >>> import fastavro
    >>> from trilake.trevni.mappings.avro import write_avro
    >>> file, avro = BytesIO(), BytesIO()
    >>> _ = write_avro([["a", "b"], []], {"type": "array", "items": "string"}, file)
    >>> to_avro(file.getvalue(), avro)
    2
    >>> list(fastavro.reader(BytesIO(avro.getvalue())))
    [['a', 'b'], []]
    """
    if codec not in WRITE_CODECS:
        raise InvalidArgumentError(f"codec must be one of {', '.join(WRITE_CODECS)}, got {codec!r}")
    file = source if isinstance(source, TrevniFile) else TrevniFile(source)
    parsed = AvroSchema(schema) if schema is not None else read_schema(file)
    records = _Counted(read_avro(file, parsed, tagged=True))
    metadata = {
        key: value.decode("utf-8", "surrogateescape")
        for key, value in file.metadata.items()
        if key != SCHEMA_KEY and not key.startswith(("avro.", RESERVED)) and _is_text(value)
    }
    if hasattr(target, "write"):
        _write(target, parsed, records, codec, metadata, file.uri)
        return records.count
    store, key = target if isinstance(target, tuple) else locate(target)
    with store.open_output(key) as sink:
        _write(sink, parsed, records, codec, metadata, file.uri)
    return records.count


def _is_text(value: bytes) -> bool:
    """Whether fastavro can write metadata with this value: it expects strings."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Counted:
    def __init__(self, records: Iterator[Any]) -> None:
        self._records, self.count = records, 0

    def __iter__(self) -> Iterator[Any]:
        for record in self._records:
            yield record
            self.count += 1


def _write(sink: Any, schema: AvroSchema, records: _Counted, codec: str, metadata: dict[str, str], file: str) -> None:
    try:
        fastavro.writer(sink, schema.root, records, codec=codec, metadata=metadata)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as e:
        raise SchemaMismatchError(f"a record does not match the Avro schema: {e!r}", file=file) from e
