"""Trilake tables in ``spark.catalog``: columns, description, partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import catalog
from pyspark.sql.catalog import Column, Table

from trilake.delta.log.clustering import clustering_columns
from trilake.delta.protocol.schema_edit import format_path
from trilake.sql.spark.session.frames import frame_of, head_of
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target
from trilake.sql.spark.show.show import shown_type


def columns(session: SqlSession, target: Target) -> list[Column]:
    """The table's current columns."""
    if target.format != "delta":
        return [_column(f.name, f.dataType.simpleString()) for f in frame_of(session, target).schema.fields]
    head = head_of(session, target)
    inside, clustered = head.metadata.partition_columns, {format_path(c) for c in clustering_columns(head)}
    out = []
    for field in head.schema.fields:
        comment = field.metadata.get("comment")
        out.append(
            _column(
                field.name,
                shown_type(field),
                None if comment is None else str(comment),
                field.nullable,
                partition=field.name in inside,
                cluster=field.name in clustered,
            )
        )
    return out


def _column(
    name: str,
    type: str,
    comment: str | None = None,
    nullable: bool = True,
    partition: bool = False,
    cluster: bool = False,
) -> Column:
    clustered = {"isCluster": cluster} if "isCluster" in Column._fields else {}  # not before 4.0
    return Column(name, comment, type, nullable, partition, False, **clustered)


def table(session: SqlSession, target: Target, spark_method: Callable[[], Table]) -> Table:
    """Spark's description of a table, with the table's own comment and the right table type.

    Spark takes a table of any Python data source for a managed one.
    """
    if target.format == "delta":
        description = head_of(session, target).metadata.description
    else:
        frame_of(session, target)  # raises where there is no table
        description = None
    if target.entry is None:
        return Table(target.path, "spark_catalog", [target.format], description, "EXTERNAL", False)
    entry = spark_method()._replace(tableType="MANAGED" if target.entry.managed else "EXTERNAL")
    return entry._replace(description=description) if target.format == "delta" else entry


def partition(spec: str) -> Any:
    """A partition for ``listPartitions``, which Spark has since 4.3."""
    return catalog.TablePartition(partition=spec)
