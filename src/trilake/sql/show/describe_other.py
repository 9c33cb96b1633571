"""Answers about tables that are no Delta tables, and repairs."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.delta.commands.maintenance.fsck import fsck as take_out_missing
from trilake.errors import TableNotFoundError
from trilake.spark.delta.maintenance import ManyRunner, detail_schema
from trilake.sql.session.frames import log_to_change
from trilake.sql.session.results import rows
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target, find_entry


def _row(session: SqlSession, format: str, name: str | None, location: str | None, partitions: list[str]) -> DataFrame:
    wanted = detail_schema()
    given: dict[str, object] = {
        "format": format,
        "name": name,
        "location": location,
        "partitionColumns": partitions,
        "clusteringColumns": [],
    }
    files = (
        [o for o in session.store(location).list() if not o.key.split("/")[-1].startswith((".", "_"))]
        if location
        else []
    )
    given |= {"numFiles": len(files), "sizeInBytes": sum(f.size for f in files), "properties": {}}
    return session.spark.createDataFrame([tuple(given.get(f.name) for f in wanted.fields)], wanted)


def detail(session: SqlSession, parts: tuple[str, ...], target: Target | None) -> DataFrame:
    """DESCRIBE DETAIL of a table of the catalogue that is no Delta table.  Raises ``TableNotFoundError``."""
    if target is not None:
        return _row(session, target.format, target.catalog_name, target.path, [])
    entry = find_entry(session, parts)
    if entry is None or entry.is_view:
        raise TableNotFoundError(f"the table {'.'.join(parts)} cannot be found", help="check the name")
    inside = [c.name for c in session.spark.catalog.listColumns(f"`{entry.database}`.`{entry.table}`") if c.isPartition]
    return _row(session, entry.provider, f"spark_catalog.{entry.database}.{entry.table}", entry.location, inside)


def path_detail(session: SqlSession, path: str) -> DataFrame:
    """DESCRIBE DETAIL of a folder without a Delta table.  Raises ``TableNotFoundError`` where nothing is there."""
    if next(iter(session.store(path).list()), None) is None:
        raise TableNotFoundError(f"there is nothing at {path}", help="check the path", file=path)
    return _row(session, "parquet", None, path, [])


def optimize_lance(session: SqlSession, target: Target) -> DataFrame:
    """OPTIMIZE of a Lance dataset: small fragments are joined."""
    from trilake.spark.lance import jobs as lance_jobs  # late: the libraries of Lance are an extra

    done = lance_jobs.compact(session.spark, target.path)
    names = [n for n in done.__dataclass_fields__ if isinstance(getattr(done, n), int)]
    metrics = T.StructType([T.StructField(n, T.LongType()) for n in names])
    schema = T.StructType([T.StructField("path", T.StringType()), T.StructField("metrics", metrics)])
    return rows(session, schema, [(target.path, tuple(getattr(done, n) for n in names))])


def fsck(session: SqlSession, target: Target, *, dry_run: bool) -> DataFrame:
    """Take files that are gone out of the log; one row a file, with whether its data file is missing."""
    log = log_to_change(session, target)
    missing = take_out_missing(log, dry_run=dry_run, run=ManyRunner(session.spark, log.store, least=32))
    return rows(session, "dataFilePath string, dataFileMissing boolean", [(p, True) for p in missing])
