"""DESCRIBE TABLE EXTENDED ... AS JSON of trilake tables, as in Spark 4."""

from __future__ import annotations

import datetime as dt
from typing import Any

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.schema_edit import path_text
from trilake.delta.rules.defaults import default_text
from trilake.errors import InvalidArgumentError
from trilake.spark.session.schemas import to_spark
from trilake.sql.spark.session.frames import frame_of, head_of
from trilake.sql.spark.session.results import rows
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target
from trilake.sql.spark.show.show_create import table_properties

#: Names of types that differ from ``simpleString``.
_NAMES = {"timestamp": "timestamp_ltz"}


def describe_json(session: SqlSession, target: Target, *, extended: bool) -> DataFrame:
    """Describe a table as JSON.  Raises ``InvalidArgumentError`` without EXTENDED."""
    if not extended:
        raise InvalidArgumentError(
            "[DESCRIBE_JSON_NOT_EXTENDED] DESCRIBE TABLE ... AS JSON only supported when EXTENDED is specified",
            help="write DESCRIBE EXTENDED ... AS JSON",
        )
    entry = target.entry
    database, table = (target.format, target.path) if entry is None else (entry.database, entry.table)
    facts: dict[str, Any] = {
        "table_name": table,
        "catalog_name": "spark_catalog",
        "namespace": [database],
        "schema_name": database,
    }
    managed = entry is not None and entry.managed
    place = {
        "location": target.path if "://" in target.path else f"file:{target.path}",
        "type": "MANAGED" if managed else "EXTERNAL",
        "provider": target.format,
    }
    if target.format == "delta":
        facts |= _of_delta(head_of(session, target), place)
    else:
        facts |= {"columns": _fields(frame_of(session, target).schema)} | place
    return rows(session, "json_metadata string", [(orjson.dumps(facts).decode(),)])


def _of_delta(head: Head, place: dict[str, str]) -> dict[str, Any]:
    metadata = head.metadata
    columns = _fields(to_spark(head.schema))
    for column, field in zip(columns, head.schema.fields, strict=True):
        default = default_text(field)
        if default is not None:
            column["default"] = default
    out: dict[str, Any] = {"columns": columns}
    clustered = clustering_columns(head)
    if clustered:
        out["clustering_columns"] = [path_text(c) for c in clustered]
    out["location"] = place["location"]
    if metadata.created_time is not None:
        created = dt.datetime.fromtimestamp(metadata.created_time / 1000, dt.UTC)
        out["created_time"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    out |= place
    if metadata.description:
        out["comment"] = metadata.description
    out["table_properties"] = dict(sorted(table_properties(head).items()))
    if metadata.partition_columns:
        out["partition_columns"] = list(metadata.partition_columns)
    return out


def _fields(struct: T.StructType) -> list[dict[str, Any]]:
    out = []
    for f in struct.fields:
        facts: dict[str, Any] = {"name": f.name, "type": _type(f.dataType), "nullable": f.nullable}
        comment = (f.metadata or {}).get("comment")
        if comment is not None:
            facts["comment"] = comment
        out.append(facts)
    return out


def _type(kind: T.DataType) -> dict[str, Any]:
    if isinstance(kind, T.StructType):
        return {"name": "struct", "fields": _fields(kind)}
    if isinstance(kind, T.ArrayType):
        return {"name": "array", "element_type": _type(kind.elementType), "element_nullable": kind.containsNull}
    if isinstance(kind, T.MapType):
        return {
            "name": "map",
            "key_type": _type(kind.keyType),
            "value_type": _type(kind.valueType),
            "value_nullable": kind.valueContainsNull,
        }
    if isinstance(kind, T.DecimalType):
        return {"name": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, T.StringType):
        return {"name": "string", "collation": getattr(kind, "collation", "UTF8_BINARY")}
    name = kind.simpleString()
    return {"name": _NAMES.get(name, name)}
