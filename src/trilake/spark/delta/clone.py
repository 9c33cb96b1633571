"""CLONE in a Spark session; the source and the target are paths or names in the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.log.log import DeltaLog
from trilake.spark.catalog.named_tables import default_location, find_delta_table, new_name, refresh_name, table_at
from trilake.spark.delta.maintenance import check_is, check_properties, many_runner
from trilake.spark.delta.settings import session_log
from trilake.spark.session.settings import session_store
from trilake.storage import is_absolute


def clone_table(
    spark: SparkSession,
    log: DeltaLog,
    options: Mapping[str, str],
    target: str,
    shallow: bool,
    replace: bool,
    properties: Mapping[str, str] | None,
    *,
    version: int | None = None,
) -> str:
    """Clone a table and return the location of the target.  ``target`` is a path, ``delta.`/path```, or a name in the
    catalog, which is created if it does not exist.  Raises ``ValueError``, as delta-spark does, for arguments of other
    types."""
    check_is(str, target, "target")
    check_is(bool, shallow, "isShallow")
    check_is(bool, replace, "replace")
    check_properties(properties)
    path, name, managed = clone_location(spark, target)
    source = log.snapshot(version)

    def run(path: str) -> str:
        into, many = session_log(spark, session_store(spark, path, options)), many_runner(spark, log.store, least=32)
        clone(source, log, into, shallow=shallow, replace_target=replace, properties=properties, run=many)
        if name is not None:
            refresh_name(spark, name, path, into, managed=managed is not False)
        return path

    if name is None or managed is not None:
        return run(path)
    comment = source.metadata.description
    with new_name(spark, name, source.schema, comment=comment, options=options, replaces=replace) as location:
        return run(location)


def clone_location(spark: SparkSession, target: str) -> tuple[str, str | None, bool | None]:
    """The path of a target, its name in the catalog (if any), and whether that is managed (``None`` if it is new)."""
    by_path = table_at(target)
    if by_path is not None and by_path.format == "delta":
        return by_path.location, None, None
    if is_absolute(target) or "/" in target:
        return target, None, None
    if (table := find_delta_table(spark, target)) is not None:
        return table.location, target, table.managed
    return default_location(spark, target), target, None
