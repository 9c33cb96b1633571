"""File-sink manifests: pass a list of files to Spark without any listing.

Spark's streaming file sink writes a folder ``_spark_metadata`` that names its files, and a batch read of the parent
folder uses that list unchanged.  This module writes such a folder for files that are elsewhere, and caches the
latest DataFrames over manifests.

The manifest may state any modification time for a file, and every row sees it as
``_metadata.file_modification_time``, which is constant for all rows of a file.  :class:`FileKey` packs what a row must
know about its file into the lowest bits; the other bits stay those of the true time.
"""

from __future__ import annotations

import re
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.common.lru_cache import LruCache
from trilake.errors import TrilakeError
from trilake.expr.terms import engine
from trilake.spark.session.compat import is_connect, parse_release
from trilake.spark.session.internals import connect_plan

Integers = npt.NDArray[np.int64]

#: Spark multiplies the modification time, in ms as a signed 64-bit integer, by 1,000.  That is 8, three zero bits,
#: times the odd number 125, which only permutes the values of the lowest bits.
_KEY_BITS = 53
_ZEROS, _ODD = 3, 125
#: Keys up to this size keep the higher bits of the time, which stays right to a quarter of an hour, and to a second for
#: up to a thousand files.
_MOST_TIME_BITS = 20
#: Up to this many local files, the true sizes are used; each takes about 10 µs.
CHECKED_SIZES = 4096
#: Names of files that Spark always skips.
_NEVER_READ = r"/(?:_metadata|_common_metadata)[^/=]*$"
#: Names for which Hadoop's local file system cannot name the checksum file.
_NEVER_OPENED = r"^(?:file:|/).*:[^/]*$"
_HEAD_AND_PATH = r"(?s)^(?P<head>[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/]*)?|)(?P<path>.*)$"
#: Options that decide which files are read; they are ignored in a table's options.
_FILE_CHOICE = re.compile("(?i)path|paths|basepath|pathglobfilter|modified(before|after)|recursivefilelookup|ignore.*")


class NativeScanError(TrilakeError):
    """Spark's own scan would not read these files correctly; trilake's reader can."""

    code = "NATIVE_SCAN"


@dataclass(frozen=True)
class FileKey:
    """Small numbers that belong to files, packed into one modification time per file.

    ``parts`` has non-negative numbers by name, one per file.

    >>> key = FileKey({"slot": np.array([0, 1, 1]), "tuple": np.array([5, 0, 4])})
    >>> key.packed(3).tolist()
    [2, 5, 13]
    >>> key.packed(3, np.array([1_000_007, 1_000_007, 0])).tolist()
    [1000002, 1000005, 13]
    """

    parts: Mapping[str, Integers]

    def packed(self, count: int, times: Integers | None = None) -> Integers:
        """The modification times of ``count`` files in ms, close to ``times`` if keys are small.  Raises
        ``NativeScanError`` if the parts need too many bits."""
        out, shift = np.zeros(count, np.int64), 0
        for name, values in self.parts.items():
            bits = self._bits(name)
            if shift + bits > _KEY_BITS:
                raise NativeScanError(f"too many files with partition values and deletion vectors: {count}")
            out |= values << shift
            shift += bits
        # Rows see the time in microseconds: choose it so that its bits are the key, without a division.
        inverse = np.uint64(pow(_ODD, -1, 1 << shift))
        out = (out.view(np.uint64) * inverse & np.uint64((1 << shift) - 1)).view(np.int64)
        if times is not None and shift <= _MOST_TIME_BITS:
            out |= np.clip(times, 0, (1 << _KEY_BITS) - 1) >> shift << shift
        return out

    def term(self, name: str, modified: str) -> str:
        """SQL for a part, given the SQL of ``_metadata.file_modification_time``.

        >>> FileKey({"slot": np.array([0, 1, 1]), "tuple": np.array([5, 0, 4])}).term("tuple", "m")
        'CAST(shiftright(unix_micros(m), 4) & 7 AS INT)'
        """
        names = list(self.parts)
        shift = _ZEROS + sum(self._bits(n) for n in names[: names.index(name)])
        return f"CAST(shiftright(unix_micros({modified}), {shift}) & {(1 << self._bits(name)) - 1} AS INT)"

    def _bits(self, name: str) -> int:
        return int(self.parts[name].max(initial=0)).bit_length()


def manifest(paths: pa.ChunkedArray, sizes: pa.ChunkedArray, modified: Integers) -> bytes:
    """The content of a file-sink manifest.

    Parameters
    ----------
    paths: absolute and decoded: ``/a b/x``, or with a scheme, ``hdfs://host/a b/x``.
    sizes: bytes.
    modified: ms since the epoch.

    >>> print(manifest(pa.chunked_array([["/a b/%"]]), pa.chunked_array([[7]]), np.array([3])).decode())
    v1
    {"path":"file:///a%20b/%25","size":7,"isDir":false,"modificationTime":3,"blockReplication":1,"blockSize":134217728,"action":"add"}
    """
    large = pa.large_string()
    columns = [_uris(paths.cast(large)), sizes.cast(large), pa.chunked_array([pa.array(modified)]).cast(large)]
    fixed = ('\n{"path":"', '","size":', ',"isDir":false,"modificationTime":')
    end = ',"blockReplication":1,"blockSize":134217728,"action":"add"}'
    parts = [part for pair in zip(fixed, columns, strict=True) for part in (pa.scalar(pair[0], large), pair[1])]
    lines = pc.binary_join_element_wise(*parts, pa.scalar(end, large), pa.scalar("", large)).combine_chunks()
    ends = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
    body: bytes = lines.buffers()[2].slice(ends[0], ends[-1] - ends[0]).to_pybytes()
    return b"v1" + body


def _uris(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Paths as URIs that need no escapes in JSON."""
    heads = pa.scalar("file://", paths.type)
    if not pc.all(pc.starts_with(paths, "/")).as_py():
        split = pc.extract_regex(paths, _HEAD_AND_PATH)
        heads, paths = (pc.struct_field(split, name) for name in ("head", "path"))
        heads = pc.replace_substring_regex(heads, "^s3n?:", "s3a:")
        heads = pc.if_else(pc.equal(heads, ""), "file://", heads)
    odd = pc.match_substring_regex(paths, "[^A-Za-z0-9/._=~-]")
    if pc.any(odd).as_py():
        escaped = engine.query("SELECT replace(url_encode(p), '%2F', '/') AS p FROM t", t=pa.table({"p": paths}))["p"]
        paths = pc.if_else(odd, escaped.cast(paths.type), paths)
    return pc.binary_join_element_wise(heads, paths, pa.scalar("", paths.type))


def scan_options(
    options: Mapping[str, str], *, hive: bool, floats: bool = False, bounds: bool = True
) -> dict[str, str]:
    """The options for reading exactly the files of a manifest, under any settings of the session.  With ``hive``, Spark
    infers partition columns.  With ``floats``, dictionaries and Bloom filters are off: Parquet's reader compares
    bitwise, so a search for 0.0 would skip -0.0.  Without ``bounds``, the reader ignores the bounds in files."""
    out = {k: v for k, v in options.items() if not _FILE_CHOICE.fullmatch(k)}
    out["ignoreMissingFiles"] = out["ignoreCorruptFiles"] = "false"
    out["ignoredPathSegmentRegex"] = ""  # from Spark 4.3 on: also read names with a leading _ or .
    # Without this, Spark expects files without partition columns directly below the manifest's folder.
    out["recursiveFileLookup"] = str(not hive).lower()
    if floats:
        out["parquet.filter.dictionary.enabled"] = out["parquet.filter.bloom.enabled"] = "false"
    if not bounds:
        out["parquet.filter.stats.enabled"] = out["parquet.filter.columnindex.enabled"] = "false"
    # If a footer does not mention the old calendar, the file uses today's, whatever the session assumes.
    out["datetimeRebaseMode"] = out["int96RebaseMode"] = "CORRECTED"
    # Verify page checksums, if a file has them.
    out["parquet.page.verify-checksum.enabled"] = "true"
    return out


def unreadable(paths: pa.ChunkedArray, spark_version: str) -> str | None:
    """A file that Spark would skip silently, or cannot open, because of its name; ``None`` if there is none."""
    hidden = [] if parse_release(spark_version) >= (4, 3) else [r"/\.[^/]*$", r"/_[^/=]*$"]
    pattern = f"(?s){'|'.join([_NEVER_READ, _NEVER_OPENED, *hidden])}"
    rejected = paths.filter(pc.match_substring_regex(paths, pattern))
    return rejected[0].as_py() if len(rejected) else None


def sound_sizes(paths: pa.ChunkedArray, sizes: pa.ChunkedArray) -> pa.ChunkedArray:
    """Sizes with which Spark reads every row: it does not open a file of size 0, and reads only row groups within the
    size.  The true size replaces the logged one for a moderate number of local files.  Raises ``NativeScanError``."""
    sizes = pc.fill_null(sizes.cast(pa.int64()), 0)
    if len(paths) <= CHECKED_SIZES and pc.all(pc.starts_with(paths, "/")).as_py():
        infos = LocalFileSystem().get_file_info(paths.to_pylist())
        true: list[Any] = [i.size for i in infos]  # None for a missing file: Spark's error names it
        # At least 1, because Spark must open an empty file, which raises.
        return pa.chunked_array(
            [pc.max_element_wise(pc.coalesce(pa.array(true, pa.int64()), sizes.combine_chunks()), 1)]
        )
    bad = pc.less_equal(sizes, 0)
    if pc.any(bad).as_py():
        raise NativeScanError("the log has no size for a data file", file=paths.filter(bad)[0].as_py())
    return sizes


# --- the scans of manifests, which Spark parses at about 30 µs per line, so the latest ones are kept -----------------


#: Limits on cached scans and on the bytes of their manifests: about 300,000 files, 200 MB of the driver's heap.
_MOST_FRAMES = 16
_MOST_BYTES = 64 << 20
#: Values by session and key; a session's ID may be that of an earlier one.
_recent = LruCache(_MOST_FRAMES, _MOST_BYTES)


def cached_value(spark: SparkSession, key: bytes) -> Any:
    """The value cached for this session and ``key``, or ``None``."""
    session, value = _recent.get((id(spark), key), (None, None))
    return value if session is not None and session() is spark else None


def cache_value(spark: SparkSession, key: bytes, value: object, size: int) -> None:
    """Cache a value with ``size`` bytes of manifest; ``key`` is a digest of everything it depends on."""
    _recent.put((id(spark), key), (weakref.ref(spark), value), size)


def base_frame(
    spark: SparkSession, content: bytes, provider: str, schema: T.StructType, options: Mapping[str, str]
) -> DataFrame:
    """The scan of the files of a manifest, with the columns to read, including those that Spark infers from folders."""
    # A new name each time, since Spark treats two scans of one folder as the same scan.
    folder = Path(mkdtemp(prefix="trilake-scan-"))
    try:
        write_manifest(folder, content)
        frame = spark.read.format(provider).options(**dict(options)).schema(schema).load(folder.as_uri())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if is_connect(spark):
        # The server reads the manifest whenever it analyses a plan with this relation; all such plans refer to the
        # relation's object.
        weakref.finalize(connect_plan(frame), shutil.rmtree, folder, ignore_errors=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # Spark has already read it
    return frame


def write_manifest(folder: Path, content: bytes) -> None:
    """Write a manifest to the place where a read of ``folder`` finds it."""
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_bytes(content)
