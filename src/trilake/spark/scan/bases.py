"""Cache of the DataFrames that scan a list of files.

Spark parses a manifest line by line, at about 30 µs per line, so the latest DataFrames are kept, up to a limit on their
files.  The key of a short list is its manifest.  The manifest of a long list is slow to build, so callers pass another
key (:func:`cached_value` and :func:`cache_value`).
"""

from __future__ import annotations

import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import connect_plan

#: Limits on cached frames and on the bytes of their manifests: about 300,000 files, 200 MB of the driver's heap.
_MOST_FRAMES = 16
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class _CachedBase:
    session: weakref.ref[SparkSession]
    value: Any
    size: int


class _Bases:
    def __init__(self) -> None:
        self.entries: OrderedDict[tuple[object, ...], _CachedBase] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: tuple[object, ...], spark: SparkSession) -> Any:
        with self.lock:
            entry = self.entries.get(key)
            if entry is None or entry.session() is not spark:
                return None
            self.entries.move_to_end(key)
            return entry.value

    def put(self, key: tuple[object, ...], entry: _CachedBase) -> None:
        with self.lock:
            self.entries[key] = entry
            while len(self.entries) > _MOST_FRAMES or sum(k.size for k in self.entries.values()) > _MOST_BYTES:
                self.entries.popitem(last=False)


_bases = _Bases()


def cached_value(spark: SparkSession, key: bytes) -> Any:
    """The value cached for this session and ``key``, or ``None``."""
    return _bases.get((id(spark), key), spark)


def cache_value(spark: SparkSession, key: bytes, value: object, size: int) -> None:
    """Cache a value derived from a DataFrame for the next use of the same files.

    Parameters
    ----------
    key: a digest of everything the value depends on.
    size: bytes of the DataFrame's manifest.
    """
    _bases.put((id(spark), key), _CachedBase(weakref.ref(spark), value, size))


def base_frame(
    spark: SparkSession,
    content: bytes,
    provider: str,
    schema: T.StructType,
    options: Mapping[str, str],
    *,
    keep: bool = True,
) -> DataFrame:
    """The scan of the files of a manifest.

    Parameters
    ----------
    content: the manifest.
    provider: the format of the files.
    schema: the columns to read, including those that Spark infers from folders.
    options: the options of the read, which decide whether Spark infers columns.
    keep: use the cache.

    DataFrames that share a scan have the same expression IDs: rename every column before use.
    """
    key: tuple[object, ...] = ()
    if keep:
        key = (id(spark), sha256(content).digest(), provider, schema.json(), tuple(sorted(options.items())))
        cached: DataFrame | None = _bases.get(key, spark)
        if cached is not None:
            return cached
    # A new name each time, since Spark takes two scans of one folder for the same scan.
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
    if keep:
        _bases.put(key, _CachedBase(weakref.ref(spark), frame, len(content)))
    return frame


def write_manifest(folder: Path, content: bytes) -> None:
    """Write a manifest to the place where a read of ``folder`` finds it."""
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_bytes(content)
