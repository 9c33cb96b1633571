"""DESCRIBE, SHOW and SHOW CREATE TABLE of trilake tables, from their logs or the columns of their rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.common.text import columns_help, quote_name, string_literal
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.snapshot import Head
from trilake.delta.metadata.property_changes import CLUSTERING_COLUMNS
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.features import writer_features
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.protocol.schema import StructField, StructType, parse_schema
from trilake.delta.protocol.schema_edit import field_at, format_path
from trilake.delta.protocol.sql_types import spelled
from trilake.delta.rules.defaults import default_expression
from trilake.delta.rules.identity import identity_columns
from trilake.delta.scan.generated import generation_expression
from trilake.delta.scan.scan import matching_partitions, parse_table_filter
from trilake.errors import InvalidArgumentError, SchemaMismatchError, stating
from trilake.spark.session.schemas import to_spark
from trilake.sql.parser.changes import partition_clause, partition_condition
from trilake.sql.parser.create import CLUSTERING_FEATURE, property_key
from trilake.sql.parser.cursor import Cursor
from trilake.sql.spark.session.frames import frame_of, head_of, open_delta
from trilake.sql.spark.session.relations import query
from trilake.sql.spark.session.session import SqlSession, rows
from trilake.sql.spark.session.targets import Target, target_of


@dataclass(frozen=True)
class Description:
    """What a table's log says of it; without a log, only the columns of its rows are known."""

    schema: StructType
    properties: Mapping[str, str]
    partition_columns: Sequence[str] = ()
    clustering: Sequence[tuple[str, ...]] = ()
    comment: str | None = None
    created_ms: int | None = None


def describe(session: SqlSession, target: Target) -> Description:
    """Describe a table.  Raises ``TableNotFoundError``."""
    if not target.has_log:
        return Description(parse_schema(frame_of(session, target).schema.json()), {})
    head = head_of(session, target)
    about, clustering = head.metadata, clustering_columns(head)
    return Description(
        head.schema, table_properties(head), about.partition_columns, clustering, about.description, about.created_time
    )


def table_properties(head: Head) -> dict[str, str]:
    """A table's properties, including those of its protocol."""
    out = dict(head.metadata.configuration)
    out["delta.minReaderVersion"] = str(head.protocol.min_reader_version)
    out["delta.minWriterVersion"] = str(head.protocol.min_writer_version)
    if head.protocol.min_writer_version >= 7:
        names = {*writer_features(head.protocol), *(head.protocol.reader_features or ())}
        out.update({f"delta.feature.{n}": "supported" for n in names})
        if "clustering" in names:
            out[CLUSTERING_COLUMNS] = orjson.dumps([list(c) for c in clustering_columns(head)]).decode()
    return out


def sql_type(field: StructField) -> str:
    """A column's type as SQL, with a ``varchar``'s length."""
    limit = field.metadata.get(TYPE_STRING)
    return str(limit) if limit is not None else spelled(field.type, _field, upper=True)


def _field(field: StructField, kind: str) -> str:
    return f"{_plain(field.name)}: {kind}{'' if field.nullable else ' NOT NULL'}"


def _plain(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quote_name(name)


def show_create(session: SqlSession, target: Target) -> DataFrame:
    """The statement that would create the table."""
    about = describe(session, target)
    name = target.catalog_name or f"{target.format}.{quote_name(target.path)}"
    columns = ",\n".join(f"  {_column(f)}" for f in about.schema.fields)
    lines = [f"CREATE TABLE {name} (\n{columns})" if columns else f"CREATE TABLE {name}", f"USING {target.format}"]
    if about.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(_plain(c) for c in about.partition_columns)})")
    if about.clustering:
        lines.append(f"CLUSTER BY ({', '.join(format_path(c) for c in about.clustering)})")
    if about.comment:
        lines.append(f"COMMENT {string_literal(about.comment)}")
    if target.entry is None or not target.entry.managed:
        lines.append(f"LOCATION {string_literal(_uri(target.path))}")
    hidden = (
        "delta.columnMapping.maxColumnId",
        "delta.rowTracking.",
        CLUSTERING_COLUMNS,
        CLUSTERING_FEATURE,
    )
    properties = {k: v for k, v in about.properties.items() if not k.startswith(hidden)}
    if properties:
        inside = ",\n".join(f"  {string_literal(k)} = {string_literal(v)}" for k, v in sorted(properties.items()))
        lines.append(f"TBLPROPERTIES (\n{inside})")
    return rows(session, "createtab_stmt string", [("\n".join(lines) + "\n",)])


def _uri(path: str) -> str:
    return path if "://" in path else f"file:{path}"


def _column(field: StructField) -> str:
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


_DESCRIBE = "col_name string, data_type string, comment string"
#: Words after DESCRIBE that are not about a table.
_NO_TABLES = ("FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "PROCEDURE", "VARIABLE", "VAR")
Row = tuple[str, str, str | None]


def run_show(session: SqlSession, sql: str) -> DataFrame | None:
    """Run a DESCRIBE or SHOW of a trilake table; ``None`` for any other."""
    cursor = Cursor(sql)
    if cursor.accept("SHOW"):
        return _show(session, cursor)
    cursor.at += 1
    if cursor.is_any(*_NO_TABLES) and cursor.at + 1 < len(cursor.tokens):
        return None
    if cursor.is_any("QUERY", "SELECT", "WITH", "FROM", "VALUES") and cursor.at + 1 < len(cursor.tokens):
        cursor.accept("QUERY")
        fields = query(session, cursor.rest()).schema.fields
        return rows(
            session, _DESCRIBE, [(f.name, f.dataType.simpleString(), (f.metadata or {}).get("comment")) for f in fields]
        )
    if cursor.is_word("TABLE") and cursor.at + 1 < len(cursor.tokens):
        cursor.accept("TABLE")
    extended = cursor.accept("EXTENDED") or cursor.accept("FORMATTED")
    parts = cursor.name()
    target = target_of(session, parts)
    if target is None:
        return None  # Spark describes views
    if cursor.is_word("AS", "JSON"):
        return describe_json(session, target, extended=extended)
    if cursor.is_word("PARTITION") and cursor.is_symbol("(", ahead=1):
        raise InvalidArgumentError(
            f"DESCRIBE ... PARTITION is not supported for {target.display_name}",
            help="leave PARTITION out; SHOW PARTITIONS lists partitions",
            file=target.path,
            condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
        )
    if cursor.token is not None and cursor.token.is_name:
        return _describe_column(session, target, cursor.name())
    about = describe(session, target)
    out = _columns(about)
    if extended and target.has_log:
        out += _details(target, about)
    return rows(session, _DESCRIBE, out)


def _columns(about: Description) -> list[Row]:
    out: list[Row] = [_described(f) for f in about.schema.fields]
    if about.partition_columns:
        out += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        out += [_described(about.schema.field(n)) for n in about.partition_columns]
    if about.clustering:
        out += [("# Clustering Information", "", ""), ("# col_name", "data_type", "comment")]
        out += [(format_path(c), shown_type(field_at(about.schema, c)), None) for c in about.clustering]
    return out


def _described(field: StructField) -> Row:
    comment = field.metadata.get("comment")
    return field.name, shown_type(field), None if comment is None else str(comment)


def shown_type(field: StructField) -> str:
    """A column's type as Spark shows it, with a ``varchar``'s length."""
    if TYPE_STRING in field.metadata:
        return sql_type(field)
    return to_spark(StructType((field,))).fields[0].dataType.simpleString()


def _details(target: Target, about: Description) -> list[Row]:
    properties = ",".join(f"{k}={v}" for k, v in sorted(about.properties.items()))
    kind = "EXTERNAL" if target.entry is None or not target.entry.managed else "MANAGED"
    name, provider = target.catalog_name or f"{target.format}.`{target.path}`", target.format
    out: list[Row] = [("", "", ""), ("# Detailed Table Information", "", ""), ("Name", name, ""), ("Type", kind, "")]
    if about.comment:
        out.append(("Comment", about.comment, ""))
    out += [
        ("Location", _uri(target.path), ""),
        ("Provider", provider, ""),
        ("Table Properties", f"[{properties}]", ""),
    ]
    return out


def _describe_column(session: SqlSession, target: Target, path: tuple[str, ...]) -> DataFrame:
    frame = frame_of(session, target)
    field = next((f for f in frame.schema.fields if f.name.lower() == path[0].lower()), None)
    if field is None or len(path) > 1:
        raise SchemaMismatchError(
            f"[UNRESOLVED_COLUMN] column {'.'.join(path)} not found in {target.display_name}",
            help=columns_help(path[0], frame.columns),
            column=".".join(path),
        )
    comment = (field.metadata or {}).get("comment") or "NULL"
    info = [("col_name", field.name), ("data_type", field.dataType.simpleString()), ("comment", comment)]
    return rows(session, "info_name string, info_value string", info)


def _show(session: SqlSession, cursor: Cursor) -> DataFrame | None:
    if cursor.accept("CREATE", "TABLE"):
        target = target_of(session, cursor.name())
        return None if target is None else show_create(session, target)
    if cursor.accept("TBLPROPERTIES"):
        target = target_of(session, cursor.name())
        return None if target is None else _properties(session, target, cursor)
    if cursor.accept("COLUMNS"):
        return _show_columns(session, cursor)
    if cursor.accept("PARTITIONS"):
        target = target_of(session, cursor.name())
        return None if target is None else _show_partitions(session, target, cursor)
    return None


def _properties(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame:
    properties = describe(session, target).properties
    pairs: Iterable[tuple[str, str]] = sorted(properties.items())
    if cursor.is_symbol("("):
        key = property_key(cursor.inside())
        missing = f"Table {target.catalog_name or target.display_name} does not have property: {key}"
        pairs = [(key, properties.get(key, missing))]
    return rows(session, "key string, value string", pairs)


def _show_columns(session: SqlSession, cursor: Cursor) -> DataFrame | None:
    if not cursor.accept("IN"):
        cursor.expect("FROM")
    parts = cursor.name()
    if cursor.accept("IN") or cursor.accept("FROM"):
        database = cursor.name()
        if len(parts) > 1 and [p.lower() for p in parts[:-1]] != [p.lower() for p in database]:
            return None  # Spark raises
        parts = (*database, parts[-1])
    target = target_of(session, parts)
    if target is None:
        return None
    return rows(session, "col_name string", [(c,) for c in frame_of(session, target).columns])


def _show_partitions(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame:
    """List partitions as ``a=1/b=x``.  Raises ``InvalidArgumentError`` for an unpartitioned table."""
    snapshot = open_delta(session, target).snapshot if target.has_log else None
    names = () if snapshot is None else snapshot.metadata.partition_columns
    if snapshot is None or not names:
        raise InvalidArgumentError(
            "[INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED]"
            f" {target.display_name} is not partitioned",
            help="SHOW PARTITIONS is for partitioned tables",
            file=target.path,
        )
    fields = partition_fields(snapshot.schema, names)
    static, dynamic = partition_clause(cursor)
    if dynamic:
        cursor.fail()
    cursor.end()
    with stating({"NON_PARTITION_COLUMN": "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_COLUMN"}):
        condition = partition_condition(static, fields, target.path)
    where = parse_table_filter(condition, snapshot)
    adds = snapshot.adds
    if where is not None:
        adds = adds.filter(matching_partitions(snapshot, adds, where))
    folders = PartitionKeys.of(adds["partitionValues"], fields).folders
    return rows(session, "partition string", [(p,) for p in sorted(folders)])


# --- DESCRIBE TABLE EXTENDED ... AS JSON of trilake tables, as in Spark 4 ---------------------------------------------

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
    about = describe(session, target)
    facts["columns"] = columns = _fields(to_spark(about.schema))
    for column, field in zip(columns, about.schema.fields, strict=True):
        default = default_expression(field)
        if default is not None:
            column["default"] = default
    if about.clustering:
        facts["clustering_columns"] = [format_path(c) for c in about.clustering]
    facts["location"] = _uri(target.path)
    if about.created_ms is not None:
        created = dt.datetime.fromtimestamp(about.created_ms / 1000, dt.UTC)
        facts["created_time"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    facts["type"] = "MANAGED" if entry is not None and entry.managed else "EXTERNAL"
    facts["provider"] = target.format
    if about.comment:
        facts["comment"] = about.comment
    if about.properties:
        facts["table_properties"] = dict(sorted(about.properties.items()))
    if about.partition_columns:
        facts["partition_columns"] = list(about.partition_columns)
    return rows(session, "json_metadata string", [(orjson.dumps(facts).decode(),)])


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
