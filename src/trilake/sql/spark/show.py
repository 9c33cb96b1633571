"""DESCRIBE, SHOW and SHOW CREATE TABLE of trilake tables, from their logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
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
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.protocol.sql_types import spelled
from trilake.delta.rules.defaults import default_expression
from trilake.delta.rules.identity import identity_columns
from trilake.delta.scan.generated import generation_expression
from trilake.delta.scan.scan import matching_partitions, parse_table_filter, read_schema
from trilake.errors import InvalidArgumentError, SchemaMismatchError, stating
from trilake.spark.session.schemas import to_spark
from trilake.sql.parser.changes import partition_clause, partition_condition
from trilake.sql.parser.create import CLUSTERING_FEATURE, property_key
from trilake.sql.parser.cursor import Cursor
from trilake.sql.spark.session.frames import frame_of, head_of, open_delta
from trilake.sql.spark.session.relations import query
from trilake.sql.spark.session.session import SqlSession, rows
from trilake.sql.spark.session.targets import Target, resolve


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
    hidden = (
        "delta.constraints.",
        "delta.columnMapping.maxColumnId",
        "delta.rowTracking.",
        CLUSTERING_COLUMNS,
        CLUSTERING_FEATURE,
    )
    properties = {k: v for k, v in table_properties(head).items() if not k.startswith(hidden)}
    if properties:
        inside = ",\n".join(f"  {string_literal(k)} = {string_literal(v)}" for k, v in sorted(properties.items()))
        lines.append(f"TBLPROPERTIES (\n{inside})")
    return rows(session, "createtab_stmt string", [("\n".join(lines) + "\n",)])


def _uri(path: str) -> str:
    return path if "://" in path else f"file:{path}"


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
        return _describe_fields(session, query(session, cursor.rest()))
    if cursor.is_word("TABLE") and cursor.at + 1 < len(cursor.tokens):
        cursor.accept("TABLE")
    extended = cursor.accept("EXTENDED") or cursor.accept("FORMATTED")
    parts = cursor.name()
    target = resolve(session, parts)
    if not isinstance(target, Target):
        return None  # Spark describes views
    if cursor.is_word("AS", "JSON"):
        return describe_json(session, target, extended=extended)
    if cursor.is_word("PARTITION") and cursor.is_symbol("(", ahead=1):
        raise InvalidArgumentError(
            f"DESCRIBE ... PARTITION is not supported for {target.shown}",
            help="leave PARTITION out; SHOW PARTITIONS lists partitions",
            file=target.path,
            condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
        )
    if cursor.token is not None and cursor.token.is_name:
        return _describe_column(session, target, cursor.name())
    if target.format != "delta":
        return _describe_fields(session, frame_of(session, target))
    head = head_of(session, target)
    out = _columns(head)
    if extended:
        out += _details(session, target, head)
    return rows(session, _DESCRIBE, out)


def _describe_fields(session: SqlSession, frame: DataFrame) -> DataFrame:
    return rows(
        session,
        _DESCRIBE,
        [(f.name, f.dataType.simpleString(), (f.metadata or {}).get("comment")) for f in frame.schema.fields],
    )


def _columns(head: Head) -> list[Row]:
    schema = read_schema(head.schema)
    out: list[Row] = [_described(f) for f in schema.fields]
    names = head.metadata.partition_columns
    if names:
        out += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        out += [_described(schema.field(n)) for n in names]
    clustered = clustering_columns(head)
    if clustered:
        out += [("# Clustering Information", "", ""), ("# col_name", "data_type", "comment")]
        out += [(format_path(c), shown_type(_at(schema, c)), None) for c in clustered]
    return out


def _at(schema: StructType, path: tuple[str, ...]) -> StructField:
    field = schema.field(path[0])
    for part in path[1:]:
        assert isinstance(field.type, StructType)
        field = field.type.field(part)
    return field


def _described(field: StructField) -> Row:
    comment = field.metadata.get("comment")
    return field.name, shown_type(field), None if comment is None else str(comment)


def shown_type(field: StructField) -> str:
    """A column's type as Spark shows it, with a ``varchar``'s length."""
    if TYPE_STRING in field.metadata:
        return sql_type(field)
    return to_spark(StructType((field,))).fields[0].dataType.simpleString()


def _details(session: SqlSession, target: Target, head: Head) -> list[Row]:
    properties = ",".join(f"{k}={v}" for k, v in sorted(table_properties(head).items()))
    kind = "EXTERNAL" if target.entry is None or not target.entry.managed else "MANAGED"
    out: list[Row] = [("", "", ""), ("# Detailed Table Information", "", "")]
    out += [("Name", target.catalog_name or f"delta.`{target.path}`", ""), ("Type", kind, "")]
    if head.metadata.description:
        out.append(("Comment", head.metadata.description, ""))
    out += [("Location", _uri(target.path), ""), ("Provider", "delta", ""), ("Table Properties", f"[{properties}]", "")]
    return out


def _describe_column(session: SqlSession, target: Target, path: tuple[str, ...]) -> DataFrame:
    frame = frame_of(session, target)
    field = next((f for f in frame.schema.fields if f.name.lower() == path[0].lower()), None)
    if field is None or len(path) > 1:
        raise SchemaMismatchError(
            f"[UNRESOLVED_COLUMN] column {'.'.join(path)} not found in {target.shown}",
            help=columns_help(path[0], frame.columns),
            column=".".join(path),
        )
    comment = (field.metadata or {}).get("comment") or "NULL"
    info = [("col_name", field.name), ("data_type", field.dataType.simpleString()), ("comment", comment)]
    return rows(session, "info_name string, info_value string", info)


def _show(session: SqlSession, cursor: Cursor) -> DataFrame | None:
    if cursor.accept("CREATE", "TABLE"):
        target = resolve(session, cursor.name())
        return show_create(session, target) if isinstance(target, Target) else None
    if cursor.accept("TBLPROPERTIES"):
        target = resolve(session, cursor.name())
        return _properties(session, target, _key(cursor)) if isinstance(target, Target) else None
    if cursor.accept("COLUMNS"):
        return _show_columns(session, cursor)
    if cursor.accept("PARTITIONS"):
        target = resolve(session, cursor.name())
        return _show_partitions(session, target, cursor) if isinstance(target, Target) else None
    return None


def _key(cursor: Cursor) -> str | None:
    if not cursor.is_symbol("("):
        return None
    return property_key(Cursor(cursor.bracketed()))


def _properties(session: SqlSession, target: Target, key: str | None) -> DataFrame:
    properties: Mapping[str, str] = {}
    if target.format == "delta":
        properties = table_properties(head_of(session, target))
    pairs: Iterable[tuple[str, str]] = sorted(properties.items())
    if key is not None:
        missing = f"Table {target.catalog_name or target.shown} does not have property: {key}"
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
    target = resolve(session, parts)
    if not isinstance(target, Target):
        return None
    return rows(session, "col_name string", [(c,) for c in frame_of(session, target).columns])


def _show_partitions(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame:
    """List partitions as ``a=1/b=x``.  Raises ``InvalidArgumentError`` for an unpartitioned table."""
    snapshot = open_delta(session, target).snapshot if target.format == "delta" else None
    names = () if snapshot is None else snapshot.metadata.partition_columns
    if snapshot is None or not names:
        raise InvalidArgumentError(
            f"[INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED] {target.shown} is not partitioned",
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
    managed = entry is not None and entry.managed
    place = {"location": _uri(target.path), "type": "MANAGED" if managed else "EXTERNAL", "provider": target.format}
    if target.format == "delta":
        facts |= _of_delta(head_of(session, target), place)
    else:
        facts |= {"columns": _fields(frame_of(session, target).schema)} | place
    return rows(session, "json_metadata string", [(orjson.dumps(facts).decode(),)])


def _of_delta(head: Head, place: dict[str, str]) -> dict[str, Any]:
    metadata = head.metadata
    columns = _fields(to_spark(head.schema))
    for column, field in zip(columns, head.schema.fields, strict=True):
        default = default_expression(field)
        if default is not None:
            column["default"] = default
    out: dict[str, Any] = {"columns": columns}
    clustered = clustering_columns(head)
    if clustered:
        out["clustering_columns"] = [format_path(c) for c in clustered]
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
