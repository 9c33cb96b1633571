"""Telling Spark a list of files without any listing: the file-sink manifest.

Spark's streaming file sink leaves a folder ``_spark_metadata`` behind that names its files, and a batch read of the
folder above takes that list as it is.  Here such a folder is written for files that are elsewhere.

The modification time stated for a file is free to choose, and every row can see it as
``_metadata.file_modification_time``, which is constant for all rows of a file.  :class:`FileKey` packs into its lowest
bits what rows must know of their file; the others stay those of the true time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem

from trilake.errors import TrilakeError
from trilake.expr.terms import engine

Integers = npt.NDArray[np.int64]

#: Spark multiplies the modification time, milliseconds in a signed 64-bit integer, by 1,000: by 8, and by an odd
#: number, which only gives the numbers that the lowest bits may be another order.
_KEY_BITS = 53
_ZEROS, _ODD = 3, 125
#: Keys up to this size leave the time its higher bits: it is right to a quarter of an hour, and to a second for up to
#: a thousand files.
_MOST_TIME_BITS = 20
#: Up to this many local files are asked for their true size, which takes about 10 µs each.
CHECKED_SIZES = 4096
#: Spark passes over files with such names, whatever it is told,
_NEVER_READ = r"/(?:_metadata|_common_metadata)[^/=]*$"
#: and Hadoop's local file system fails to name the checksum file of such a file.
_NEVER_OPENED = r"^(?:file:|/).*:[^/]*$"
_HEAD_AND_PATH = r"(?s)^(?P<head>[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/]*)?|)(?P<path>.*)$"
#: The options of a read that decide which files are read; a table's own options have no say in that.
_FILE_CHOICE = re.compile("(?i)path|paths|basepath|pathglobfilter|modified(before|after)|recursivefilelookup|ignore.*")


class NativeScanError(TrilakeError):
    """Spark's own scan cannot read these files soundly; trilake's own reader can."""

    code = "NATIVE_SCAN"


@dataclass(frozen=True)
class FileKey:
    """Small numbers that belong to files, packed into one modification time a file.

    ``parts`` has non-negative numbers by name, one a file.

    >>> key = FileKey({"slot": np.array([0, 1, 1]), "tuple": np.array([5, 0, 4])})
    >>> key.packed(3).tolist()
    [2, 5, 13]
    >>> key.packed(3, np.array([1_000_007, 1_000_007, 0])).tolist()
    [1000002, 1000005, 13]
    """

    parts: Mapping[str, Integers]

    def packed(self, count: int, times: Integers | None = None) -> Integers:
        """The modification times of ``count`` files in milliseconds: near ``times``, where keys are small.

        Raises ``NativeScanError`` where they take more bits than there are.
        """
        out, shift = np.zeros(count, np.int64), 0
        for name, values in self.parts.items():
            bits = self._bits(name)
            if shift + bits > _KEY_BITS:
                raise NativeScanError(
                    f"{count} files with partition values and deletion vectors are too many to number"
                )
            out |= values << shift
            shift += bits
        # What the rows see is the time in microseconds: its bits are to be the key, with nothing to divide.
        inverse = np.uint64(pow(_ODD, -1, 1 << shift))
        out = (out.view(np.uint64) * inverse & np.uint64((1 << shift) - 1)).view(np.int64)
        if times is not None and shift <= _MOST_TIME_BITS:
            out |= np.clip(times, 0, (1 << _KEY_BITS) - 1) >> shift << shift
        return out

    def term(self, name: str, modified: str) -> str:
        """A part as an SQL, given that of ``_metadata.file_modification_time``.

        >>> FileKey({"slot": np.array([0, 1, 1]), "tuple": np.array([5, 0, 4])}).term("tuple", "m")
        'CAST(shiftright(unix_micros(m), 4) & 7 AS INT)'
        """
        names = list(self.parts)
        shift = _ZEROS + sum(self._bits(n) for n in names[: names.index(name)])
        return f"CAST(shiftright(unix_micros({modified}), {shift}) & {(1 << self._bits(name)) - 1} AS INT)"

    def _bits(self, name: str) -> int:
        return int(self.parts[name].max(initial=0)).bit_length()


def manifest(paths: pa.ChunkedArray, sizes: pa.ChunkedArray, modified: Integers) -> bytes:
    """The text of a file-sink manifest.

    Parameters
    ----------
    paths: absolute, decoded: ``/a b/x``, or with a scheme, ``hdfs://host/a b/x``.
    sizes: bytes.
    modified: milliseconds.

    >>> print(manifest(pa.chunked_array([["/a b/%"]]), pa.chunked_array([[7]]), np.array([3])).decode())
    v1
    {"path":"file:///a%20b/%25","size":7,"isDir":false,"modificationTime":3,"blockReplication":1,"blockSize":134217728,"action":"add"}
    """
    text = pa.large_string()
    columns = [_uris(paths.cast(text)), sizes.cast(text), pa.chunked_array([pa.array(modified)]).cast(text)]
    fixed = ('\n{"path":"', '","size":', ',"isDir":false,"modificationTime":')
    end = ',"blockReplication":1,"blockSize":134217728,"action":"add"}'
    parts = [part for pair in zip(fixed, columns, strict=True) for part in (pa.scalar(pair[0], text), pair[1])]
    lines = pc.binary_join_element_wise(*parts, pa.scalar(end, text), pa.scalar("", text)).combine_chunks()
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
    """The options of a read of exactly a manifest's files: with these, no setting of a session makes Spark pass over
    a file.

    Parameters
    ----------
    options: those of the files' format.
    hive: let Spark infer partition columns from the folders.
    floats: whether there are floating point columns.  Parquet's reader looks a value up in dictionaries and Bloom
        filters by its bits, and so passes over row groups of -0.0 where 0.0 is asked for: those are not asked then.
    bounds: let the reader skip row groups and pages by the bounds that a file states.
    """
    out = {k: v for k, v in options.items() if not _FILE_CHOICE.fullmatch(k)}
    out["ignoreMissingFiles"] = out["ignoreCorruptFiles"] = "false"
    out["ignoredPathSegmentRegex"] = ""  # names that start with _ or . are read like others, from Spark 4.3 on
    # Without this, and without partition columns, Spark looks for files right below the manifest's folder only.
    out["recursiveFileLookup"] = str(not hive).lower()
    if floats:
        out["parquet.filter.dictionary.enabled"] = out["parquet.filter.bloom.enabled"] = "false"
    if not bounds:
        out["parquet.filter.stats.enabled"] = out["parquet.filter.columnindex.enabled"] = "false"
    # What has no note of an old calendar in its footer was written in today's, whatever the session assumes.
    out["datetimeRebaseMode"] = out["int96RebaseMode"] = "CORRECTED"
    # A page of Parquet that is not what it was when it was written is an error, where the file has checksums of pages.
    out["parquet.page.verify-checksum.enabled"] = "true"
    return out


def unreadable(paths: pa.ChunkedArray, spark_version: str) -> str | None:
    """A file that Spark would silently leave out, or cannot open, because of its name; if there is one."""
    major, minor = (int(n) for n in spark_version.split(".")[:2])
    hidden = [] if (major, minor) >= (4, 3) else [r"/\.[^/]*$", r"/_[^/=]*$"]
    pattern = f"(?s){'|'.join([_NEVER_READ, _NEVER_OPENED, *hidden])}"
    refused = paths.filter(pc.match_substring_regex(paths, pattern))
    return refused[0].as_py() if len(refused) else None


def sound_sizes(paths: pa.ChunkedArray, sizes: pa.ChunkedArray) -> pa.ChunkedArray:
    """Sizes under which Spark reads every row.

    Spark does not open a file of size 0 and takes only those row groups that lie within the size it is told.  So the
    true size replaces that of the log where asking for it is cheap: for a moderate number of local files.

    Raises ``NativeScanError`` for a size that is none and cannot be replaced.
    """
    sizes = pc.fill_null(sizes.cast(pa.int64()), 0)
    if len(paths) <= CHECKED_SIZES and pc.all(pc.starts_with(paths, "/")).as_py():
        infos = LocalFileSystem().get_file_info(paths.to_pylist())
        true: list[Any] = [i.size for i in infos]  # None for a missing file: Spark's error names it
        # At least 1, because an empty file that should hold rows must be an error too.
        return pa.chunked_array(
            [pc.max_element_wise(pc.coalesce(pa.array(true, pa.int64()), sizes.combine_chunks()), 1)]
        )
    bad = pc.less_equal(sizes, 0)
    if pc.any(bad).as_py():
        raise NativeScanError("the log gives a data file no size", file=paths.filter(bad)[0].as_py())
    return sizes
