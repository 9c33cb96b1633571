"""SHOW CREATE TABLE of trilake tables."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from pyspark.sql import DataFrame

from trilake.common.text import quote_name, string_literal
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.features import writer_features
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.protocol.sql_types import spelled
from trilake.delta.rules.defaults import default_expression
from trilake.delta.rules.identity import identity_columns
from trilake.delta.scan.generated import generation_expression
from trilake.sql.spark.session.frames import frame_of, head_of
from trilake.sql.spark.session.results import rows
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target

#: Spark's property for clustering columns.
_CLUSTERING = "clusteringColumns"


def table_properties(head: Head) -> dict[str, str]:
    """A table's properties, including those of its protocol."""
    out = dict(head.metadata.configuration)
    out["delta.minReaderVersion"] = str(head.protocol.min_reader_version)
    out["delta.minWriterVersion"] = str(head.protocol.min_writer_version)
    if head.protocol.min_writer_version >= 7:
        names = {*writer_features(head.protocol), *(head.protocol.reader_features or ())}
        out.update({f"delta.feature.{n}": "supported" for n in names})
        if "clustering" in names:
            out[_CLUSTERING] = orjson.dumps([list(c) for c in clustering_columns(head)]).decode()
    return out


def sql_type(field: StructField) -> str:
    """A column's type as SQL, with a ``varchar``'s length."""
    limit = field.metadata.get(TYPE_STRING)
    return str(limit) if limit is not None else spelled(field.type, _field, upper=True)


def _field(field: StructField, kind: str) -> str:
    return f"{_plain(field.name)}: {kind}{'' if field.nullable else ' NOT NULL'}"


def _plain(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quote_name(name)


def _name_clause(name: str | None, columns: list[str]) -> list[str]:
    if not columns:
        return [f"CREATE TABLE {name}"]
    return [f"CREATE TABLE {name} (", ",\n".join(f"  {c}" for c in columns) + ")"]


def show_create(session: SqlSession, target: Target) -> DataFrame:
    """The statement that would create the table."""
    name = target.catalog_name if target.entry is not None else f"delta.{quote_name(target.path)}"
    if target.format != "delta":
        columns = [
            f"{_plain(f.name)} {f.dataType.simpleString().upper()}" for f in frame_of(session, target).schema.fields
        ]
        lines = [*_name_clause(name, columns), f"USING {target.format}"]
        lines.append(f"LOCATION {string_literal(target.path)}")
        return rows(session, "createtab_stmt string", [("\n".join(lines) + "\n",)])
    head = head_of(session, target)
    lines = [*_name_clause(name, [_column(head, f) for f in head.schema.fields]), "USING delta"]
    if head.metadata.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(_plain(c) for c in head.metadata.partition_columns)})")
    clustered = clustering_columns(head)
    if clustered:
        lines.append(f"CLUSTER BY ({', '.join(format_path(c) for c in clustered)})")
    if head.metadata.description:
        lines.append(f"COMMENT {string_literal(head.metadata.description)}")
    if target.entry is None or not target.entry.managed:
        lines.append(f"LOCATION {string_literal(_uri(target.path))}")
    properties = _stated(head)
    if properties:
        inside = ",\n".join(f"  {string_literal(k)} = {string_literal(v)}" for k, v in sorted(properties.items()))
        lines.append(f"TBLPROPERTIES (\n{inside})")
    return rows(session, "createtab_stmt string", [("\n".join(lines) + "\n",)])


def _uri(path: str) -> str:
    return path if "://" in path else f"file:{path}"


def _stated(head: Head) -> Mapping[str, str]:
    """Properties that a statement may set."""
    hidden = ("delta.constraints.", "delta.columnMapping.maxColumnId", "delta.rowTracking.", _CLUSTERING)
    return {k: v for k, v in table_properties(head).items() if not k.startswith(hidden)}


def _column(head: Head, field: StructField) -> str:
    out = f"{_plain(field.name)} {sql_type(field)}"
    if not field.nullable:
        out += " NOT NULL"
    generated, default = generation_expression(field), default_expression(field)
    identity = next((c for c in identity_columns(StructType((field,)))), None)
    if generated is not None:
        out += f" GENERATED ALWAYS AS ({generated})"
    elif identity is not None:
        how = "BY DEFAULT" if identity.explicit else "ALWAYS"
        out += f" GENERATED {how} AS IDENTITY (START WITH {identity.start} INCREMENT BY {identity.step})"
    elif default is not None:
        out += f" DEFAULT {default}"
    comment = field.metadata.get("comment")
    return out if comment is None else f"{out} COMMENT {string_literal(str(comment))}"
