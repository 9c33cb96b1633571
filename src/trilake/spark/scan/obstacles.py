"""Whether Spark can scan files itself, and the reason if it cannot."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.parquet.untyped import first_untyped
from trilake.spark.scan.manifest import NativeScanError, unreadable
from trilake.spark.session.compat import error_condition, is_connect
from trilake.spark.session.internals import SPARK_ERRORS
from trilake.spark.session.type_tree import parts

#: Formats for which Spark has a file scan.
_PROVIDERS = {"parquet", "orc", "json", "csv", "text"}
#: If this setting is on, Spark ignores manifests and lists the folder.
_IGNORE_MANIFESTS = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
#: Setting with a list of formats; those not in it use Spark's V2 scans, which have no ``_metadata``.
_SCANS = "spark.sql.sources.useV1SourceList"

#: The most files whose footers are checked before Spark scans them, at 30 µs each; results are cached.
_MOST_FOOTERS = 4096

#: Results of the probe by session and root: a reason, or ``None`` if Spark can read it.
_tried: WeakKeyDictionary[SparkSession, dict[str, str | None]] = WeakKeyDictionary()


def native_obstacle(uri: str, provider: str, *, vectors: bool = False, spark: SparkSession | None = None) -> str | None:
    """Why Spark cannot scan the files of the table at ``uri`` itself; ``None`` if it can.  Without ``spark``, only
    local files count as reachable."""
    scheme = uri.partition(":")[0]
    if spark is None and scheme != "file":
        return f"Spark has no file system for {scheme}: it needs a connector such as hadoop-aws"
    if provider not in _PROVIDERS:
        return f"Spark has no scan for {provider} files"
    if vectors and provider != "parquet":
        return f"deletion vectors need row numbers, which Spark does not provide for {provider} files"
    if spark is None:
        return None
    return _settings_obstacle(spark, provider) or _reach_obstacle(spark, uri)


def check_files(spark: SparkSession, provider: str, paths: pa.ChunkedArray, *, vectors: bool) -> None:
    """Raise :class:`NativeScanError` if Spark would not read exactly the rows of these files."""
    reason = native_obstacle("file:/", provider, vectors=vectors) or _settings_obstacle(spark, provider)
    if reason is not None:
        raise NativeScanError(reason)
    unread = unreadable(paths, spark.version)
    if unread is not None:
        raise NativeScanError("Spark does not read files with such a name", file=unread)
    if len(paths.unique()) < len(paths):
        raise NativeScanError("the log lists a file twice, but Spark would read it once")
    if provider == "parquet" and len(paths) <= _MOST_FOOTERS:
        untyped = first_untyped(p for p in paths.to_pylist() if p.startswith("/"))
        if untyped is not None:
            raise NativeScanError(
                "a file has a column without a type (void), which Spark would read as integers", file=untyped
            )


def check_types(schema: T.StructType) -> None:
    """Reject columns whose values files cannot store, such as arrays of void.  Raises :class:`NativeScanError`."""
    for field in schema.fields:
        if not isinstance(field.dataType, T.NullType) and _may_be_lost(field.dataType):
            raise NativeScanError(f"column {field.name} contains the type void")


def _may_be_lost(type_: T.DataType) -> bool:
    """Whether a type other than void, or a part of it, consists only of void."""
    inside = [inner for _, inner in parts(type_)]
    voids = [isinstance(inner, T.NullType) for inner in inside]
    lost = all(voids) if isinstance(type_, T.StructType) else any(voids)
    return lost or any(map(_may_be_lost, inside))


def _settings_obstacle(spark: SparkSession, provider: str) -> str | None:
    if (spark.conf.get(_IGNORE_MANIFESTS, "false") or "").lower() == "true":
        return f"the session has {_IGNORE_MANIFESTS} enabled, so Spark does not accept a list of files"
    if provider not in (spark.conf.get(_SCANS, provider) or "").lower().split(","):
        return f"the session's {_SCANS} does not name {provider}"
    return None


def _reach_obstacle(spark: SparkSession, uri: str) -> str | None:
    tried = _tried.setdefault(spark, {})
    root = "/".join(uri.split("/")[:3])
    if root not in tried:
        tried[root] = _unreachable(spark, hadoop_uri(uri)) if root != "file://" else _hidden_folders(spark)
    return tried[root]


def _unreachable(spark: SparkSession, uri: str) -> str | None:
    """Why Spark cannot reach a store; tested with a file that does not exist."""
    try:
        _ = spark.read.text(f"{uri}/_trilake_probe").schema  # Connect sends the plan here
    except SPARK_ERRORS as e:
        if isinstance(e, AnalysisException) and error_condition(e) == "PATH_NOT_FOUND":
            return None
        lines = [line for line in str(e).splitlines() if line.strip()]
        # The Java exception follows py4j's first line.
        detail = next((line for line in lines if not line.startswith("An error occurred while calling")), "")
        return f"Spark cannot read {uri.partition(':')[0]}: {detail.lstrip(': ')}"
    return None


def _hidden_folders(spark: SparkSession) -> str | None:
    """Why a session cannot read a manifest: its server must see this process's folders."""
    if not is_connect(spark):
        return None
    with tempfile.TemporaryDirectory(prefix="trilake-probe-") as folder:
        Path(folder, "seen").touch()
        try:
            _ = spark.read.text(Path(folder, "seen").as_uri()).schema  # asks the server
        except AnalysisException:
            return "the Spark Connect server cannot read this machine's files"
    return None


def hadoop_uri(uri: str) -> str:
    """A table's URI in the form of Spark's file systems."""
    return f"s3a:{uri[3:]}" if uri.startswith("s3:") else uri


def decoded(uri: str) -> str:
    """A location as a path, or as an unescaped URI.

    >>> decoded("file:/a%20b"), decoded("s3://b/x%20y")
    ('/a b', 's3://b/x y')
    """
    plain = unquote(uri)
    return "/" + plain.removeprefix("file:").lstrip("/") if plain.startswith("file:") else plain
