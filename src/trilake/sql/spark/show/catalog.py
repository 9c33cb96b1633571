"""Trilake tables in ``spark.catalog``: columns, description, partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import catalog
from pyspark.sql.catalog import Column, Table

from trilake.delta.log.clustering import clustering_columns
from trilake.delta.protocol.schema_edit import path_text
from trilake.sql.spark.session.frames import frame_of, head_of
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target
from trilake.sql.spark.show.show import shown_type


def columns(session: SqlSession, target: Target) -> list[Column]:
    """The columns that the table has now, whatever the catalogue remembers."""
    if target.format != "delta":
        return [_column(f.name, f.dataType.simpleString()) for f in frame_of(session, target).schema.fields]
    head = head_of(session, target)
    inside, clustered = head.metadata.partition_columns, {path_text(c) for c in clustering_columns(head)}
    out = []
    for field in head.schema.fields:
        comment = field.metadata.get("comment")
        said = None if comment is None else str(comment)
        by = field.name in inside, field.name in clustered
        out.append(_column(field.name, shown_type(field), said, field.nullable, *by))
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


def table(session: SqlSession, target: Target, spark_says: Callable[[], Table]) -> Table:
    """What Spark says of a name, with the table's own description and its true kind; of a path, the same.

    Spark asks the Python source that a provider stands for, and takes a table of any source for a managed one.
    """
    if target.format == "delta":
        description = head_of(session, target).metadata.description
    else:
        frame_of(session, target)  # says what is wrong where there is nothing
        description = None
    if target.entry is None:
        return Table(target.path, "spark_catalog", [target.format], description, "EXTERNAL", False)
    entry = spark_says()._replace(tableType="MANAGED" if target.entry.managed else "EXTERNAL")
    return entry._replace(description=description) if target.format == "delta" else entry


def partition(spec: str) -> Any:
    """A partition as ``listPartitions`` shows it, which Spark has from 4.3 on."""
    return catalog.TablePartition(partition=spec)
