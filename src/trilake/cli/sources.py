"""Rows from files and standard input: CSV, JSON, Parquet and Arrow, as a stream of Arrow batches.

Files are streamed, except for JSON arrays, and for Parquet and Arrow on standard input, which must be read from the
end.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from trilake.cli.options import InputFormat
from trilake.common.text import columns_help
from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.parquet.old_calendar import rebasing_of
from trilake.storage import open_store
from trilake.storage.uri import Location, parse_location

STDIN = "-"
_SUFFIXES: dict[str, InputFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
#: Formats by magic bytes, and formats that are read from the end.
_MAGIC: dict[bytes, InputFormat] = {b"PAR1": "parquet", b"ARRO": "arrow", b"\xff\xff\xff\xff": "arrow"}
_RANDOM = (b"PAR1", b"ARRO")
_SPOOL = 64 << 20
#: Bytes for type inference, and the pattern of numbers that may not fit a long.
_HEAD = 1 << 20
_LONG_NUMBER = re.compile(rb"\d{19}")
#: Arrow's errors for a value that does not fit its column's type.
_UNFIT = re.compile(r"conversion error|changed from", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """How files are read.

    Parameters
    ----------
    format: the format of all files; detected from names or first bytes by default.
    types: Arrow types by column, for CSV and JSON.
    required: columns of ``types`` that CSV must have.
    delimiter, header, null: CSV options; an unquoted field equal to ``null`` is null.
    optional: columns of ``types`` that are null in JSON whose first rows lack them.
    """

    format: InputFormat | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    required: Collection[str] = ()
    delimiter: str | None = None
    header: bool = True
    null: str = ""
    optional: Collection[str] = ()


def open_rows(uris: Sequence[str], reading: Reading, options: Mapping[str, str]) -> pa.RecordBatchReader:
    """Read files one after another, with the columns of the first.

    ``uris`` are paths, URIs, or ``-`` for standard input; ``options`` are store options.  Raises
    ``InvalidArgumentError`` for an unknown format, ``ObjectNotFoundError``, ``CorruptFileError`` for an invalid file,
    and ``SchemaMismatchError`` for values or columns that do not match the first file.
    """
    if not uris:
        raise InvalidArgumentError("no files to read", help="pass files, or - for standard input")
    schema, first = _open(uris[0], reading, options)
    others = replace(reading, optional=schema.names)
    return pa.RecordBatchReader.from_batches(schema, _all(schema, first, uris, others, options))


def _all(
    schema: pa.Schema,
    first: Iterable[pa.RecordBatch],
    uris: Sequence[str],
    reading: Reading,
    options: Mapping[str, str],
) -> Iterator[pa.RecordBatch]:
    yield from _rejections(first, uris[0])
    for uri in uris[1:]:
        file_schema, batches = _open(uri, reading, options)
        if sorted(file_schema.names) != sorted(schema.names):
            raise SchemaMismatchError(
                f"expected columns {', '.join(schema.names)} as in the first file, got {', '.join(file_schema.names)}",
                help="write files with different columns in separate commands",
                file=uri,
            )
        yield from _rejections((batch.select(schema.names).cast(schema) for batch in batches), uri)


def _rejections(batches: Iterable[pa.RecordBatch], uri: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise _unfit(e, uri) from e


def _unfit(error: Exception, uri: str) -> SchemaMismatchError:
    if "unexpected field" in str(error):  # Arrow's error does not name it (pyarrow 26)
        return SchemaMismatchError(
            "a row has a field that first appears after the first megabyte",
            help='add it to the first row, such as "late": null, or set its type with --type COLUMN=TYPE',
            file=_name(uri),
        )
    return SchemaMismatchError(
        f"a value does not fit its column: {error}",
        help="types come from the table or the first megabyte; set one with --type COLUMN=TYPE",
        file=_name(uri),
    )


def _name(uri: str) -> str:
    return "standard input" if uri == STDIN else uri


def _open(uri: str, reading: Reading, options: Mapping[str, str]) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    stem = uri.lower()
    codec = next((c for end, c in _COMPRESSED.items() if stem.endswith(end)), None)
    if codec is not None:
        stem = stem[: stem.rindex(".")]
    suffix = stem[stem.rindex(".") :] if "." in stem.rpartition("/")[2] else ""
    source, rewinds = _source(uri, options)
    try:
        if codec is not None:
            source, rewinds = pa.CompressedInputStream(source, codec), False
        source, start = _peeked(source, rewinds)
        format = (
            reading.format
            or _MAGIC.get(start)
            or _SUFFIXES.get(suffix)
            or ("json" if start.lstrip()[:1] in (b"{", b"[") else None)
        )
        if format is None:
            raise InvalidArgumentError(
                "cannot detect the format of the rows",
                help="pass --from csv, json, parquet or arrow",
                file=_name(uri),
            )
        _check_use(format, reading, uri)
        if start in _RANDOM and not rewinds:  # read the whole stream, into a temporary file if it is large
            spooled: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - lives with its reader
            while data := source.read(1 << 20):
                spooled.write(data)
            spooled.seek(0)
            source = pa.PythonFile(spooled, mode="r")
        if format == "csv":
            source, head = _peeked(source, rewinds, _HEAD)
            return _csv(source, head, reading, "\t" if suffix == ".tsv" else ",")
        if format == "json":
            return _json(source, start, rewinds, reading)
        return _parquet(source) if format == "parquet" else _arrow(source, start)
    except (pa.ArrowException, UnicodeDecodeError, ValueError, EOFError) as e:
        if isinstance(e, InvalidArgumentError):
            raise
        if isinstance(e, pa.ArrowInvalid) and _UNFIT.search(str(e)):
            raise _unfit(e, uri) from e
        raise CorruptFileError(f"the file cannot be read: {e}", file=_name(uri)) from e


def _check_use(format: InputFormat, reading: Reading, uri: str) -> None:
    of_csv = {"--delimiter": reading.delimiter is not None, "--no-header": not reading.header, "--null": reading.null}
    useless = [name for name, value in of_csv.items() if value and format != "csv"]
    if reading.required and format not in ("csv", "json"):
        useless.append("--type")
    if useless:
        raise InvalidArgumentError(
            f"{useless[0]} cannot be used with {format}",
            help="leave it out, or pass the format with --from",
            file=_name(uri),
        )


def _source(uri: str, options: Mapping[str, str]) -> tuple[Any, bool]:
    """Open a file; return it and whether it is seekable, which Arrow claims for any Python stream."""
    if uri == STDIN:
        return pa.PythonFile(sys.stdin.buffer, mode="r"), False
    location = parse_location(uri)
    folder, _, key = location.path.rpartition("/")
    if not key:
        raise InvalidArgumentError("the file name is empty", file=uri)
    if location.scheme == "file":
        path = Path("/", location.path)
        with suppress(OSError):  # the store reports it
            if path.is_fifo() or path.is_char_device():  # such as a shell's ``<(...)``
                return pa.PythonFile(path.open("rb"), mode="r"), False
    return open_store(Location(location.scheme, location.authority, folder).uri, options).open_input(key), True


class _Prefixed(io.RawIOBase):
    """A stream that starts with bytes already read."""

    def __init__(self, start: bytes, rest: Any) -> None:
        self._start, self._rest = start, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._start[: len(view)] or self._rest.read(len(view))
        self._start = self._start[len(view) :]
        view[: len(data)] = data
        return len(data)


def _peeked(source: Any, rewinds: bool, size: int = 4) -> tuple[Any, bytes]:
    start: bytes = source.read(size)
    if rewinds:
        source.seek(0)
        return source, start
    return pa.PythonFile(io.BufferedReader(_Prefixed(start, source)), mode="r"), start


def _csv(source: Any, head: bytes, reading: Reading, delimiter: str) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if reading.delimiter is not None and len(reading.delimiter.encode()) != 1:
        raise InvalidArgumentError(
            f"--delimiter must be one ASCII character, got {reading.delimiter!r}", help="for a tab, pass $'\\t'"
        )
    read = pyarrow.csv.ReadOptions(autogenerate_column_names=not reading.header)
    parse = pyarrow.csv.ParseOptions(delimiter=reading.delimiter or delimiter, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict(reading.types),
        null_values=[reading.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,  # quoted "" is an empty string
    )
    convert.column_types = {**_long_numbers(head, read, parse, convert), **reading.types}
    reader = pyarrow.csv.open_csv(source, read_options=read, parse_options=parse, convert_options=convert)
    names = reader.schema.names
    for name in reading.required:
        if name not in names:
            raise InvalidArgumentError(f"--type: column {name!r} not found in the file", help=columns_help(name, names))
    return _without_null_types(reader.schema, reader)


def _long_numbers(
    head: bytes, read: pyarrow.csv.ReadOptions, parse: pyarrow.csv.ParseOptions, convert: pyarrow.csv.ConvertOptions
) -> dict[str, pa.DataType]:
    """Infer decimals for integers that do not fit a long; Arrow would infer double and lose digits."""
    if _LONG_NUMBER.search(head) is None:
        return {}
    lines = pa.BufferReader(head[: head.rfind(b"\n") + 1] if len(head) == _HEAD else head)
    try:
        inferred = pyarrow.csv.read_csv(lines, read, parse, convert)
        doubles = [f.name for f in inferred.schema if pa.types.is_float64(f.type)]
        strings = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(doubles, pa.string()),
            include_columns=doubles,
            null_values=convert.null_values,
            strings_can_be_null=True,
        )
        lines.seek(0)
        numbers = pyarrow.csv.read_csv(lines, read, parse, strings) if doubles else inferred.select([])
    except pa.ArrowException:
        return {}  # the reader raises
    whole = (n for n in doubles if pc.all(pc.match_substring_regex(numbers[n], r"^-?\d{1,38}$")).as_py())
    return dict.fromkeys(whole, pa.decimal128(38, 0))


def _json(source: Any, start: bytes, rewinds: bool, reading: Reading) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if start.lstrip()[:1] == b"[":
        rows = orjson.loads(b"".join(iter(lambda: source.read(1 << 20), b"")))
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("every element of the JSON array must be an object")
        source = io.BytesIO(b"\n".join(orjson.dumps(row) for row in rows))
        column_names: set[str] | None = set().union(*rows)
    else:
        source, head = _peeked(source, rewinds, _HEAD)
        column_names = _names(head)
    explicit = pa.schema(list(reading.types.items())) if reading.types else None
    reader = pyarrow.json.open_json(source, parse_options=pyarrow.json.ParseOptions(explicit_schema=explicit))
    available = {*(column_names or reader.schema.names), *reading.required, *reading.optional}
    absent = [n for n in reader.schema.names if n not in available]
    if not absent:
        return _without_null_types(reader.schema, reader)
    columns = [n for n in reader.schema.names if n not in absent]
    schema = pa.schema([reader.schema.field(n) for n in columns])
    return _without_null_types(schema, (_without(batch, absent, columns) for batch in reader))


def _names(head: bytes) -> set[str] | None:
    """The names in the first rows; ``None`` if they cannot be parsed."""
    lines = (head[: head.rfind(b"\n") + 1] if len(head) == _HEAD else head).splitlines()
    try:
        rows = [orjson.loads(line) for line in lines if line.strip()]
    except ValueError:
        return None  # the reader raises
    return set().union(*rows) if rows and all(isinstance(row, dict) for row in rows) else None


def _without(batch: pa.RecordBatch, absent: Sequence[str], columns: Sequence[str]) -> pa.RecordBatch:
    """Drop columns that the first rows lack, so that they get their defaults."""
    for name in absent:
        if batch.column(name).null_count < batch.num_rows:
            raise SchemaMismatchError(
                f"column {name} first appears in a row after the first megabyte",
                help=f'add it to the first row, such as "{name}": null',
                column=name,
            )
    return batch.select(columns)


def _without_null_types(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if not any(pa.types.is_null(f.type) for f in schema):
        return schema, batches
    string_schema = pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in schema])
    return string_schema, (batch.cast(string_schema) for batch in batches)


def _parquet(source: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    rebasing = rebasing_of(file)
    return file.schema_arrow, file.iter_batches() if rebasing is None else map(rebasing.rows, file.iter_batches())


def _arrow(source: Any, start: bytes) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if start in _RANDOM:
        file = pa.ipc.open_file(source)
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    stream = pa.ipc.open_stream(source)
    return stream.schema, stream
