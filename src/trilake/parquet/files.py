"""Open untrusted Parquet files: verify page checksums, and check footers before Arrow reads them.

Arrow's accessors of a column chunk (``row_group(g).column(i)``, ``.statistics``) crash the process for an inconsistent
footer (pyarrow 26; see ``tests/parquet/test_files.py``).  So footers are parsed here first, and only consistent ones
reach these accessors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

from trilake.common.arrow_types import types_in
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedFileError
from trilake.parquet.thrift import LIST, NO_FIELDS, ThriftReader
from trilake.storage.reader import ObjectFile, expect

#: Arrow's errors for a malformed file.
DAMAGE = (pa.ArrowException, ValueError, KeyError, IndexError, OverflowError)

#: Help for a damaged data file.
UNREADABLE_HELP = "restore the file, or read a version of the table without it"

#: The option of all Parquet writers for checksums of pages.
PAGE_CHECKSUMS: Mapping[str, Any] = {"write_page_checksum": True}

#: Bytes at the end of a file: the footer's length, and the magic number.
TAIL = 8
_MAGIC = b"PAR1"
#: The key of Arrow's schema in the footer.
_ARROW_SCHEMA = b"ARROW:schema"
#: Largest footer: 100,000 column chunks with statistics have about 20 MB.
_MAX_FOOTER = 1 << 28
#: Largest footer whose parsed form is cached.
SMALL_FOOTER = 1 << 18
#: Bytes of a file to prefetch.
_AHEAD = 64 << 20
TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
#: The encodings DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY, which Arrow cannot read as dictionaries.
_DELTAS = frozenset((6, 7))
#: Bytes of a bound by physical type, if fixed.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def open_parquet(source: pa.NativeFile, *, as_noted: bool = False, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file and verify its page checksums, if it has any.

    INT96 timestamps become microseconds, and extension types storage types.  Dictionary columns become plain ones
    unless ``as_noted``, since Arrow can only read some encodings as dictionaries (pyarrow 26; see
    ``tests/delta/scan/test_noted_dictionaries.py``).  ``options`` are those of ``pyarrow.parquet.ParquetFile``.
    Damaged pages raise ``OSError``.  Call :func:`checked_footer` before accessing column chunks of the footer.
    """
    import pyarrow.parquet as pq

    defaults = {"coerce_int96_timestamp_unit": "us", "arrow_extensions_enabled": False}
    reader_options = {**defaults, **options}
    file = pq.ParquetFile(source, page_checksum_verification=True, **reader_options)
    if as_noted or "metadata" in options or _ARROW_SCHEMA not in (file.metadata.metadata or ()):
        return file
    if not any(pa.types.is_dictionary(t) for f in file.schema_arrow for t in types_in(f.type)):
        return file
    plain = _without_arrow_schema(source)
    if plain is None:
        return file
    return pq.ParquetFile(source, metadata=plain, page_checksum_verification=True, **reader_options)


def _without_arrow_schema(source: pa.NativeFile) -> pq.FileMetaData | None:
    """The footer without Arrow's schema; ``None`` if it cannot be parsed."""
    import pyarrow.parquet as pq

    footer = read_footer(source)
    key = bytes([len(_ARROW_SCHEMA)]) + _ARROW_SCHEMA
    if footer is None or footer.count(key) != 1:
        return None
    footer = footer.replace(key, bytes([len(_ARROW_SCHEMA)]) + _ARROW_SCHEMA.lower())
    return pq.read_metadata(pa.BufferReader(b"".join((_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC))))


def unreadable(error: BaseException, what: str = "Parquet", *, help: str | None = None, **where: Any) -> TrilakeError:
    """The error for a data file that is damaged, or uses a feature that Arrow does not support."""
    what = what.title()
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedFileError(
            f"the {what} reader does not support the file: {error}",
            help="read it with another engine, such as Spark, and rewrite its rows",
            **where,
        )
    return CorruptFileError(f"the {what} file cannot be read: {error}", help=help, **where)


class ColumnChunk(NamedTuple):
    """One column of one row group; ``null_count`` is ``None`` if missing."""

    #: Its path in the schema, and whether it is repeated.
    path: str
    repeated: bool
    physical_type: str
    num_values: int
    null_count: int | None
    uncompressed_size: int
    #: Whether values are dictionary indexes only.
    has_dictionary_page: bool
    #: Its byte range by the footer, which may be wrong.
    start: int
    stored_size: int


#: The column chunks of each row group.
Footer = Sequence[Sequence[ColumnChunk]]


def checked_footer(source: pa.NativeFile, file: pq.ParquetFile) -> Footer:
    """Check a footer, so that Arrow's accessors are safe; return the column chunks of each row group.

    Small footers are cached, since a checkpoint is read several times.  Raises ``pyarrow.ArrowInvalid`` for an
    inconsistent footer: a wrong number of columns, a chunk of another type, bounds of a wrong width, encrypted columns,
    impossible counts or positions.
    """
    footer = read_footer(source)
    if footer is None:
        raise pa.ArrowInvalid("the file does not end with the magic bytes of an unencrypted Parquet file")
    return checked_bytes(footer, source.size(), file.metadata)


def read_footer(source: pa.NativeFile) -> bytes | None:
    """The bytes of the footer; ``None`` if the file does not end like an unencrypted Parquet file."""
    size = source.size()
    source.seek(max(0, size - TAIL))
    length = footer_length(bytes(source.read(TAIL)), size)
    if length is None:
        return None
    source.seek(size - TAIL - length)
    return bytes(source.read(length))


def footer_length(tail: bytes, size: int) -> int | None:
    """The bytes of the footer of a file of ``size`` bytes that ends with ``tail``; ``None`` if it is not plain."""
    length = int.from_bytes(tail[-TAIL:-4], "little")
    plain = len(tail) >= TAIL and tail[-4:] == _MAGIC and 0 < length <= min(size - TAIL, _MAX_FOOTER)
    return length if plain else None


def checked_bytes(footer: bytes, size: int, metadata: pq.FileMetaData) -> Footer:
    """Like :func:`checked_footer`, for the bytes of a footer and Arrow's parsed one."""
    data = _Bytes(footer, size, metadata)
    return _checked_once(data) if len(footer) <= SMALL_FOOTER else _checked(data)


def end_of_schema(footer: bytes) -> int | None:
    """The position after the schema in a footer with ordered fields, otherwise ``None``."""
    walk = ThriftReader(footer)
    try:
        if footer[0] != 0x15 or footer[(at := walk.skip(1, 5, 0))] != 0x19:  # version, schema
            return None
        return walk.skip(at + 1, LIST, 0)
    except (IndexError, ValueError):
        return None


def notes_behind_groups(rest: bytes) -> tuple[bytes, int]:
    """The writer, and the number of columns with type-defined order.  Raises ``IndexError`` or ``ValueError``."""
    at, fields = ThriftReader(rest).struct(0, _BEHIND_GROUPS, 0, last=4)
    if at != len(rest):
        raise ValueError("there are unexpected bytes after the footer")
    orders = fields.get(7, [])
    return fields.get(6, b""), sum(isinstance(order, dict) and 1 in order for order in orders)


def fetched_together(
    source: pa.NativeFile, file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[list[int]]:
    """Split ascending row groups into runs; object stores fetch the columns (or leaves) of a run at once.

    A local file has one run per range of adjacent groups.  Raises the errors of :func:`checked_footer`.
    """
    if not isinstance(source, ObjectFile):
        yield from _neighbours(groups)
        return
    footer = checked_footer(source, file)
    paths = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
    leaves = [i for i, path in enumerate(paths) if any(path == c or path.startswith(f"{c}.") for c in columns)]
    run: list[int] = []
    size = 0
    for stretch in _neighbours(groups):
        for group in stretch:
            more = sum(footer[group][i].stored_size for i in leaves)
            if run and (size + more > _AHEAD or group != run[-1] + 1):
                yield _expected(source, footer, run, leaves)
                run, size = [], 0
            run.append(group)
            size += more
    if run:
        yield _expected(source, footer, run, leaves)


def _expected(source: pa.NativeFile, footer: Footer, run: list[int], leaves: Sequence[int]) -> list[int]:
    chunks = [footer[group][i] for group in run for i in leaves]
    # Prefetching a larger group would keep it in memory twice.
    fits = sum(c.stored_size for c in chunks) <= _AHEAD
    expect(source, [(c.start, c.stored_size) for c in chunks] if fits else [])
    return run


def _neighbours(groups: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for g in groups:
        if runs and runs[-1][-1] == g - 1:
            runs[-1].append(g)
        else:
            runs.append([g])
    return runs


@dataclass(frozen=True)
class _Bytes:
    """A footer in a file of ``size`` bytes, with Arrow's ``metadata``."""

    data: bytes
    size: int
    metadata: Any = field(compare=False)


def leaves_of(schema: pq.ParquetSchema) -> list[Leaf]:
    """The leaf columns of a schema."""
    return [Leaf.of(schema.column(i)) for i in range(len(schema))]


def _checked(footer: _Bytes) -> Footer:
    try:
        groups = list(ThriftReader(footer.data).struct(0, _FILE, 0)[1].get(4, ()))
        leaves = leaves_of(footer.metadata.schema)
    except (IndexError, ValueError, OverflowError) as e:  # a name that is not UTF-8 is a ValueError
        raise pa.ArrowInvalid(f"the footer is damaged ({e})") from e
    if len(groups) != footer.metadata.num_row_groups:
        raise pa.ArrowInvalid("the footer has two different row group counts")
    checked = []
    for number, group in enumerate(groups):
        chunks = group.get(1) if isinstance(group, dict) else None
        if not isinstance(chunks, list) or len(chunks) != len(leaves):
            raise pa.ArrowInvalid(f"row group {number} does not have the columns of the file")
        rows = group.get(3)
        if not isinstance(rows, int) or rows < 0:
            raise pa.ArrowInvalid(f"row group {number} has no row count")
        pairs = zip(chunks, leaves, strict=True)
        checked.append(tuple(_checked_chunk(chunk, leaf, rows, footer.size) for chunk, leaf in pairs))
    return tuple(checked)


_checked_once = lru_cache(maxsize=32)(_checked)


class Leaf(NamedTuple):
    """A leaf column of the schema."""

    path: str
    physical_type: str
    repeated: bool
    #: Bytes of a bound, if fixed.
    width: int | None
    #: Maximum repetition and definition level.
    levels: tuple[int, int]

    @classmethod
    def of(cls, column: Any) -> Leaf:
        kind = column.physical_type
        width = column.length if kind == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(kind)
        levels = (column.max_repetition_level, column.max_definition_level)
        return cls(column.path, kind, levels[0] > 0, width, levels)


def _checked_chunk(chunk: Any, leaf: Leaf, rows: int, size: int) -> ColumnChunk:
    path = leaf.path
    if not isinstance(chunk, dict):
        raise pa.ArrowInvalid(f"column {path} has no metadata")
    meta = chunk.get(3)
    if 8 in chunk or 9 in chunk or not isinstance(meta, dict):
        raise pa.ArrowInvalid(f"column {path} is encrypted or has no metadata")
    number = meta.get(1)
    kind = TYPES[number] if isinstance(number, int) and 0 <= number < len(TYPES) else "unknown"
    if kind != leaf.physical_type:
        raise pa.ArrowInvalid(f"column {path} is {leaf.physical_type} in the schema, but {kind} in a row group")
    names = meta.get(3)
    if not isinstance(names, list) or b".".join(n for n in names if isinstance(n, bytes)) != path.encode():
        raise pa.ArrowInvalid(f"column {path} has a different name in a row group")
    _check_sizes(meta.get(16), leaf)
    values, compressed_size, plain = meta.get(5), meta.get(7), meta.get(6)
    if not isinstance(plain, int) or plain < 0:
        raise pa.ArrowInvalid(f"column {path} claims {plain} bytes before compression")
    if not isinstance(values, int) or values < 0 or (values != rows and not leaf.repeated):
        raise pa.ArrowInvalid(f"column {path} claims {values} values in a row group of {rows} rows")
    if not isinstance(compressed_size, int) or not 0 <= compressed_size <= size:
        raise pa.ArrowInvalid(f"column {path} claims {compressed_size} bytes in a file of {size}")
    statistics = meta.get(12)
    nulls = None
    if isinstance(statistics, dict):
        for key in (1, 2, 5, 6):
            bound = statistics.get(key)
            # Zero bytes mean that the bound is missing.
            if bound and not (isinstance(bound, bytes) and leaf.width in (None, len(bound))):
                raise pa.ArrowInvalid(f"column {path} has the bound {bound!r:.80}, but {kind} has {leaf.width} bytes")
        nulls = statistics.get(3)
        if nulls is not None and not (isinstance(nulls, int) and 0 <= nulls <= values):
            raise pa.ArrowInvalid(f"column {path} claims {nulls} nulls among {values} values")
    pages, dictionary = meta.get(9), meta.get(11)
    # A dictionary precedes the pages; some writers use 0 for none.
    places = [p for p in (pages, dictionary) if isinstance(p, int) and p > 0]
    has_dictionary = isinstance(dictionary, int) and _DELTAS.isdisjoint(meta.get(2) or ())
    start = min(places, default=-1)
    return ColumnChunk(path, leaf.repeated, kind, values, nulls, plain, has_dictionary, start, compressed_size)


def _check_sizes(sizes: Any, leaf: Leaf) -> None:
    """Reject level histograms that do not fit the column."""
    if not isinstance(sizes, dict):
        return
    for key, level in zip((2, 3), leaf.levels, strict=True):
        histogram = sizes.get(key)
        if histogram and not (isinstance(histogram, list) and len(histogram) == level + 1):
            raise pa.ArrowInvalid(f"column {leaf.path} has a level histogram of the wrong size")
    if 1 in sizes and leaf.physical_type != "BYTE_ARRAY":
        raise pa.ArrowInvalid(f"column {leaf.path} has a string size, but is not BYTE_ARRAY")


#: The fields of ``FileMetaData`` to parse: row groups -> columns -> meta_data -> statistics.
_STATISTICS = dict.fromkeys((1, 2, 3, 5, 6), NO_FIELDS)
_SIZES = {1: NO_FIELDS, 2: NO_FIELDS, 3: NO_FIELDS}
_COLUMN = {**dict.fromkeys((1, 2, 3, 5, 6, 7, 9, 11), NO_FIELDS), 12: _STATISTICS, 16: _SIZES}
_CHUNK = {3: _COLUMN, 8: NO_FIELDS, 9: NO_FIELDS}
_FILE = {4: {1: _CHUNK, 3: NO_FIELDS}}
_BEHIND_GROUPS = {6: NO_FIELDS, 7: {1: NO_FIELDS}}
