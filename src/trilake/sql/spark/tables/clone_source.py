"""The source of CLONE: a version of a Delta table, or Parquet files as if they were converted."""

from __future__ import annotations

from dataclasses import dataclass

from trilake.delta.commands.maintenance.clone_parquet import no_versions, snapshot_of_parquet
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructField
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.clone import partition_fields_of
from trilake.spark.delta.maintenance import ManyRunner
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.settings import UTC_ZONES, session_zone
from trilake.sql.parser.create import Create
from trilake.sql.parser.paths import parquet_path
from trilake.sql.spark.session.frames import moment_ms, open_delta
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import View, find_entry, known_table, not_found, resolve


@dataclass(frozen=True)
class CloneSource:
    """The version to clone, its log, the URI of its Parquet files, if it is not a Delta table, and its full name."""

    snapshot: Snapshot
    log: DeltaLog
    parquet: str | None = None
    name: str | None = None


def clone_source(session: SqlSession, call: Create) -> CloneSource:
    """Open the source of CLONE.

    Raises ``TableNotFoundError``, and ``InvalidArgumentError`` for a view, for a format other than Delta and Parquet,
    and for a version of Parquet files.
    """
    assert call.clone_of is not None
    display_name = ".".join(call.clone_of)
    if isinstance(resolve(session, call.clone_of), View):
        raise InvalidArgumentError(
            f"{display_name} is a view, and only tables can be cloned",
            help="name the table",
            condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
        )
    source = known_table(session, call.clone_of)
    if source is None:
        return _of_parquet(session, call)
    if source.format != "delta":
        raise InvalidArgumentError(
            f"only Delta tables and Parquet files can be cloned, and {source.shown} is a {source.format} table",
            condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
        )
    version, ms = None, None
    if call.travel is not None and call.travel[0] == "VERSION":
        version = int(session.value(call.travel[1]))
    elif call.travel is not None:
        ms = moment_ms(session, call.travel[1])
    table = open_delta(session, source, version, ms)
    return CloneSource(table.snapshot, table.log, name=None if source.entry is None else source.catalog_name)


def _of_parquet(session: SqlSession, call: Create) -> CloneSource:
    """Parquet files by ``parquet.`/path``` or by name, as if they had been converted."""
    parts = call.clone_of
    assert parts is not None
    path, fields = _files(session, parts)
    if call.travel is not None:
        raise no_versions(parts)
    store = session.store(path)
    zone = session_zone(session.spark)
    snapshot = snapshot_of_parquet(
        store,
        spark_engine(),
        partition_by=fields,
        timezone="UTC" if zone in UTC_ZONES else zone,
        run=ManyRunner(session.spark, store, least=16),
    )
    return CloneSource(snapshot, DeltaLog(store, spark_engine()), parquet=store.uri)


def _files(session: SqlSession, parts: tuple[str, ...]) -> tuple[str, list[str | StructField]]:
    """The files' location, and the partition columns: none for a path, as in CONVERT TO DELTA."""
    path = parquet_path(parts)
    if path is not None:
        return path, []
    entry = find_entry(session, parts)
    if entry is None:
        raise not_found(parts)
    if entry.is_view or entry.provider != "parquet" or entry.location is None:
        raise InvalidArgumentError(
            f"only Delta tables and Parquet files can be cloned, and {'.'.join(parts)} is neither",
            condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
        )
    return entry.location, partition_fields_of(session.spark, f"`{entry.database}`.`{entry.table}`")
