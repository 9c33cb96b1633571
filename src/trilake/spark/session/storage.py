"""Credentials and endpoints of object stores, from a session.

Options of a call take precedence over the session's Hadoop settings ``fs.s3a.*``, ``fs.azure.*`` and ``fs.gs.*``, which
may be set as ``spark.hadoop.fs...`` before the session starts or by ``spark.conf.set``; :mod:`trilake.storage` adds the
environment and AWS profiles.  Credentials are never mixed: if a call passes any, the session's are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.options import from_hadoop, hadoop_names, is_credential, is_storage_option, missing_options
from trilake.storage.uri import parse_location


def session_options(
    spark: SparkSession, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options of the store at ``uri``: those of the call, then those of the session.

    Local files and memory need none.
    """
    options = dict(options or {})
    location = parse_location(uri)
    if location.scheme in ("file", "memory"):
        return options
    settings = from_hadoop(
        _settings(spark, hadoop_names(location.scheme, location.authority)), bucket=location.authority
    )
    stated = from_hadoop({k: v for k, v in options.items() if is_storage_option(k)}, bucket=location.authority)
    if any(is_credential(name) for name in stated):
        settings = {k: v for k, v in settings.items() if not is_credential(k)}
    return {**missing_options(settings, stated), **options}


def session_store(spark: SparkSession, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
    """Open the store at ``uri`` with :func:`session_options`."""
    return open_store(uri, session_options(spark, uri, options))


def check_shared(uri: str | os.PathLike[str]) -> None:
    """Reject a location that Spark's tasks, which run in other processes, cannot see.

    Raises ``InvalidArgumentError`` for a table in memory.
    """
    if parse_location(uri).scheme == "memory":
        raise InvalidArgumentError(
            "Spark's tasks run in other processes and cannot see a table in memory",
            help="use a folder or a bucket, or trilake.open and trilake.write without Spark",
            file=str(uri),
        )


def _settings(spark: SparkSession, names: Iterable[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        hadoop = java.sessionState().newHadoopConf()  # includes the session's settings
        for name in names:
            value = hadoop.get(name)
            sources = hadoop.getPropertySources(name) if value is not None else None
            # Ignore Hadoop's defaults.
            if value is not None and not (sources is not None and str(list(sources)[-1]).endswith("-default.xml")):
                out[name] = str(value)
        return out
    for name in names:  # on Spark Connect
        setting = spark.conf.get(name, None) or spark.conf.get(f"spark.hadoop.{name}", None)
        if setting is not None:
            out[name] = setting
    return out
