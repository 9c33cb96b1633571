"""Spark's view of lists of files, kept for the next frame over the same list.

Spark parses a manifest line by line, some 30 µs each, so the newest frames that read one are kept, as long as they do
not name too many files.  Short lists are known again by their manifest, long ones by what it is made of
(:func:`cached_value` and :func:`cache_value`), because making the manifest takes longer than all else.
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

#: Most frames kept, and most bytes of their manifests: 300,000 files or so, 200 MB of the driver's heap.
_MOST_FRAMES = 16
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class _CachedBase:
    session: weakref.ref[SparkSession]
    value: Any
    size: int


class _Bases:
    """What is kept, least recently used first."""

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
    """What :func:`cache_value` was given for this session under ``key``, if it still is there; else ``None``."""
    return _bases.get((id(spark), key), spark)


def cache_value(spark: SparkSession, key: bytes, value: object, size: int) -> None:
    """Keep something made of a frame for the next use of the same files.

    Parameters
    ----------
    key: a digest of everything the value depends on.
    size: bytes of the frame's manifest.
    """
    _bases.put((id(spark), key), _CachedBase(weakref.ref(spark), value, size))


def base_frame(
    spark: SparkSession,
    text: bytes,
    provider: str,
    schema: T.StructType,
    options: Mapping[str, str],
    *,
    keep: bool = True,
) -> DataFrame:
    """The scan of the files of a manifest.

    Parameters
    ----------
    text: the manifest.
    provider: format of the files.
    schema: the columns to read, those that Spark infers from folders included.
    options: of the read, which decide between inferring columns and not.
    keep: look for the frame among those kept, and keep it.

    Frames that share a scan have the same column identities: rename every column before use.
    """
    key: tuple[object, ...] = ()
    if keep:
        key = (id(spark), sha256(text).digest(), provider, schema.json(), tuple(sorted(options.items())))
        cached: DataFrame | None = _bases.get(key, spark)
        if cached is not None:
            return cached
    # A name that was never used before: Spark takes scans of one folder for the same.
    folder = Path(mkdtemp(prefix="trilake-scan-"))
    try:
        write_manifest(folder, text)
        frame = spark.read.format(provider).options(**dict(options)).schema(schema).load(folder.as_uri())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if is_connect(spark):
        # The server reads the manifest whenever it analyses a plan with this relation in it; all such plans refer to
        # the relation's object.
        weakref.finalize(connect_plan(frame), shutil.rmtree, folder, ignore_errors=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # read entirely when the frame was made
    if keep:
        _bases.put(key, _CachedBase(weakref.ref(spark), frame, len(text)))
    return frame


def write_manifest(folder: Path, text: bytes) -> None:
    """Put a manifest where a read of ``folder`` finds it."""
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_bytes(text)
