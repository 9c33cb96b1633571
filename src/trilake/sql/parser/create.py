"""Parse CREATE and REPLACE TABLE with Delta's extensions, and convert them to a schema, a description and a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trilake.common.spark_options import has_no_effect, warn_ignored
from trilake.common.text import string_value
from trilake.delta.commands.write.create import CreateMode, TableDescription, stated_checks
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.properties import FEATURE, MIN_READER, MIN_WRITER, known_properties
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.protocol.sql_types import check_collation, parse_sql_type
from trilake.delta.rules.defaults import CURRENT_DEFAULT
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnknownOptionError,
)
from trilake.sql.parser.changes import QUERY_WORDS, is_query
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.expressions import split_names
from trilake.storage import open_store
from trilake.table.registry import DEFAULT, has_log

#: Words that end a column's default.
_AFTER_DEFAULT = (
    *("COMMENT", "DEFAULT", "GENERATED", "COLLATE", "CONSTRAINT", "CHECK", "PRIMARY", "REFERENCES", "MASK"),
)


@dataclass(frozen=True)
class Column:
    """A column definition.  ``identity`` is start, step, and whether INSERT may provide values."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    default: str | None = None
    generated: str | None = None
    identity: tuple[int, int, bool] | None = None


@dataclass(frozen=True)
class Create:
    """A CREATE or REPLACE TABLE.

    ``like`` and ``clone_of`` name another table; ``travel`` is the version to clone: ``VERSION`` or ``TIMESTAMP``, and
    an expression.
    """

    parts: tuple[str, ...]
    create: bool
    replace: bool
    if_not_exists: bool
    columns: tuple[Column, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    provider: str | None = None
    partition_by: tuple[str, ...] = ()
    #: Partition columns with a type, as in Hive.
    partition_columns: tuple[Column, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    comment: str | None = None
    query: str | None = None
    like: tuple[str, ...] | None = None
    clone_of: tuple[str, ...] | None = None
    shallow: bool = False
    travel: tuple[str, str] | None = None


def parse_create(cursor: Cursor) -> Create | None:
    """Parse the statement; ``None`` for any other one.  Raises ``SyntaxProblem``."""
    create = cursor.accept("CREATE")
    replace = cursor.accept("OR", "REPLACE") if create else cursor.accept("REPLACE")
    if not (create or replace) or (cursor.is_any("EXTERNAL") and not cursor.is_word("EXTERNAL", "TABLE")):
        return None
    cursor.accept("EXTERNAL")
    if not cursor.accept("TABLE"):
        return None
    if replace and cursor.is_word("IF", "NOT", "EXISTS"):
        cursor.fail()
    unless = cursor.accept("IF", "NOT", "EXISTS")
    parts = cursor.name()
    fields: dict[str, Any] = {}
    if cursor.accept("LIKE"):
        fields["like"] = cursor.name()
    elif cursor.is_word("SHALLOW", "CLONE") or cursor.is_word("DEEP", "CLONE") or cursor.is_word("CLONE"):
        fields.update(_clone(cursor))
    elif cursor.is_symbol("(") and not is_query(cursor):
        columns, checks = _columns(cursor)
        fields.update(columns=columns, checks=checks)
    _clauses(cursor, fields)
    query = None
    if fields.keys() & {"like", "clone_of"}:
        cursor.end()
    elif not cursor.done:
        if not (cursor.accept("AS") or cursor.is_symbol("(") or cursor.is_any(*QUERY_WORDS)):
            cursor.fail()
        query = cursor.rest()
    return Create(parts, create, replace, unless, query=query, **fields)


def _clone(cursor: Cursor) -> dict[str, object]:
    shallow = cursor.accept("SHALLOW")
    cursor.accept("DEEP")
    cursor.expect("CLONE")
    is_path = cursor.token is not None and cursor.token.kind == "string"
    source = (DEFAULT, string_value(cursor.take().text)) if is_path else cursor.name()
    travel = None
    cursor.accept("FOR")
    for word in ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME"):
        if cursor.accept(word, "AS", "OF"):
            kind = "VERSION" if "VERSION" in word else "TIMESTAMP"
            travel = (kind, cursor.sql_until("TBLPROPERTIES", "LOCATION"))
    return {"clone_of": source, "shallow": shallow, "travel": travel}


def _columns(cursor: Cursor) -> tuple[tuple[Column, ...], tuple[tuple[str, str], ...]]:
    columns: list[Column] = []
    checks: list[tuple[str, str]] = []
    for piece in cursor.pieces():
        _reject_key(piece, before="(")
        named = piece.is_word("CONSTRAINT") and piece.is_word("CHECK", ahead=2)  # not a column named ``constraint``
        if named or (piece.is_word("CHECK") and piece.is_symbol("(", ahead=1)):
            checks.append(_check(piece, len(checks)))
            piece.end()
        else:
            columns.append(parse_column(piece, checks))
    return tuple(columns), tuple(checks)


def _check(piece: Cursor, number: int) -> tuple[str, str]:
    name = piece.part() if piece.accept("CONSTRAINT") else f"chk_{number + 1}"
    piece.expect("CHECK")
    return name, piece.bracketed()


def _reject_key(piece: Cursor, *, before: str = "") -> None:
    offset = 2 if piece.is_any("CONSTRAINT") else 0
    for words in (("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("UNIQUE",), ("REFERENCES",)):
        if piece.is_word(*words, ahead=offset) and (not before or piece.is_symbol(before, ahead=offset + len(words))):
            raise InvalidArgumentError(
                f"{' '.join(words)} is not supported: it would not be enforced",
                help="leave it out; CHECK and NOT NULL constraints are enforced",
                condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
            )


def parse_column(cursor: Cursor, checks: list[tuple[str, str]] | None = None) -> Column:
    """A column's name, type and rules; its CHECK constraints are added to ``checks``.  Raises ``SyntaxProblem``,
    ``InvalidArgumentError`` for keys."""
    name = cursor.part()
    cursor.accept_symbol(":")
    kind = parse_type(cursor)
    fields: dict[str, Any] = {}
    while cursor.token is not None:
        if cursor.accept("NOT", "NULL"):
            fields["nullable"] = False
        elif cursor.accept("NULL"):
            pass
        elif cursor.accept("COMMENT"):
            fields["comment"] = cursor.string()
        elif cursor.accept("DEFAULT"):
            first = cursor.at
            cursor.take() if cursor.is_any("NULL") else cursor.until(*_AFTER_DEFAULT)
            fields["default"] = _without_not_null(cursor.sql_since(first), fields)
        elif cursor.accept("GENERATED"):
            _generated(cursor, fields)
        elif checks is not None and (cursor.is_word("CHECK") or cursor.is_word("CHECK", ahead=2)):
            checks.append(_check(cursor, len(checks)))
        else:
            _reject_key(cursor)
            cursor.fail()
    return Column(name, kind, **fields)


def _without_not_null(sql: str, fields: dict[str, object]) -> str:
    tokens = Cursor(sql).tokens
    if len(tokens) > 2 and tokens[-2].upper == "NOT" and tokens[-1].upper == "NULL" and tokens[-3].upper != "IS":
        fields["nullable"] = False
        return sql[: tokens[-3].end]
    return sql


def _generated(cursor: Cursor, fields: dict[str, object]) -> None:
    explicit = False
    if cursor.accept("BY"):
        cursor.expect("DEFAULT")
        explicit = True
    else:
        cursor.expect("ALWAYS")
    cursor.expect("AS")
    if not cursor.accept("IDENTITY"):
        fields["generated"] = cursor.bracketed().strip()
        return
    start, step = 1, 1
    if cursor.is_symbol("("):
        inside = cursor.inside()
        while inside.token is not None:
            if inside.accept("START", "WITH") or inside.accept("START"):
                start = inside.whole_number()
            elif inside.accept("INCREMENT", "BY") or inside.accept("INCREMENT"):
                step = inside.whole_number()
            elif not inside.accept_symbol(","):
                inside.fail()
    fields["identity"] = (start, step, explicit)


def parse_type(cursor: Cursor) -> str:
    """Skip a type, such as ``array<int>`` or ``decimal(10, 2)``; return its SQL."""
    first, depth = cursor.at, 0
    token = cursor.take()
    if token.upper in ("INTERVAL", "TIMESTAMP", "DOUBLE", "LONG", "TIME"):
        while cursor.is_any(
            "YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO", "WITHOUT", "WITH", "LOCAL", "ZONE", "PRECISION"
        ) or (cursor.is_any("TIME") and token.upper != "TIME"):
            cursor.take()
    while (now := cursor.token) is not None:
        depth += (now.symbol in ("(", "<")) - (now.symbol in (")", ">"))
        if depth == 0 and now.symbol not in ("(", ")", "<", ">", "<>"):
            if not cursor.accept("COLLATE"):
                break
            cursor.name()
        else:
            cursor.take()
    return cursor.sql_since(first)


def _clauses(cursor: Cursor, fields: dict[str, object]) -> None:
    while not cursor.done:
        if cursor.accept("USING"):
            fields["provider"] = cursor.name()[-1].lower()
        elif cursor.accept("PARTITIONED", "BY"):
            _partitions(cursor, fields)
        elif cursor.accept("CLUSTER", "BY"):
            if cursor.accept("AUTO") or cursor.accept("NONE"):
                continue
            fields["cluster_by"] = tuple(split_names(items(cursor.bracketed())))
        elif cursor.accept("LOCATION"):
            fields["location"] = cursor.string()
            if not fields["location"]:
                raise InvalidArgumentError(
                    "LOCATION must not be an empty string",
                    help="write the path of the table's folder, or leave LOCATION out",
                    condition="INVALID_EMPTY_LOCATION",
                )
        elif cursor.accept("COMMENT"):
            fields["comment"] = cursor.string()
        elif cursor.accept("TBLPROPERTIES"):
            fields["properties"] = key_values(cursor)
        elif cursor.accept("OPTIONS"):
            fields["options"] = key_values(cursor)
        elif cursor.accept("DEFAULT", "COLLATION"):
            check_collation(cursor.part())
        else:
            _reject_clause(cursor)
            return


#: Clauses for other formats, by their first words, and how errors name them.
_OTHERS = {
    ("CLUSTERED", "BY"): "bucketing",
    ("SKEWED", "BY"): "skewed values",
    ("ROW", "FORMAT"): "ROW FORMAT",
    ("STORED", "AS"): "STORED AS",
    ("STORED", "BY"): "STORED BY",
}


def _reject_clause(cursor: Cursor) -> None:
    for words, what in _OTHERS.items():
        if cursor.is_word(*words):
            hint = "; CLUSTER BY keeps similar rows together" if words == ("CLUSTERED", "BY") else ""
            raise InvalidArgumentError(
                f"{what} is not supported", help=f"leave the clause out{hint}", condition="DELTA_OPERATION_NOT_ALLOWED"
            )


def _partitions(cursor: Cursor, fields: dict[str, object]) -> None:
    names, columns = [], []
    for piece in cursor.pieces():
        if len(piece.tokens) == 1:
            names.append(piece.part())
        elif piece.is_symbol(".", ahead=1):
            raise InvalidArgumentError(
                f"a table cannot be partitioned by the field {piece.rest()} of a column",
                help="add a generated column with its value, and partition by it",
                condition="UNSUPPORTED_FEATURE.PARTITION_WITH_NESTED_COLUMN_IS_UNSUPPORTED",
            )
        elif piece.is_symbol("(", ahead=1):
            raise InvalidArgumentError(
                f"a table must be partitioned by columns, got the expression {piece.rest()}",
                help="add a generated column, and partition by it",
                condition="DELTA_OPERATION_NOT_ALLOWED",
            )
        else:
            columns.append(parse_column(piece))
            names.append(columns[-1].name)
    fields["partition_by"], fields["partition_columns"] = tuple(names), tuple(columns)


def key_values(cursor: Cursor) -> dict[str, str]:
    """Parse ``('a' = 'b', c.d = true)``.  Raises ``SyntaxProblem``."""
    out = {}
    for piece in cursor.pieces():
        key = property_key(piece)
        piece.accept_symbol("=") or piece.accept_symbol("==")
        token = piece.token
        value = piece.string() if token is not None and token.kind == "string" else piece.rest()
        out[key] = value.lower() if token is not None and token.upper in ("TRUE", "FALSE") else value
        piece.end()
    return out


#: The property that enables clustering, which CLUSTER BY does.
CLUSTERING_FEATURE = "delta.feature.clustering"


def check_clustering_feature(properties: Mapping[str, str], condition: str) -> None:
    """Raise ``InvalidArgumentError`` if properties enable clustering without columns."""
    if any(key.lower() == CLUSTERING_FEATURE for key in properties):
        raise InvalidArgumentError(
            f"the property {CLUSTERING_FEATURE} cannot be set",
            help="name the clustering columns with CLUSTER BY",
            property=CLUSTERING_FEATURE,
            condition=condition,
        )


def property_key(cursor: Cursor) -> str:
    """Parse a property's name: a string, or parts with dots."""
    token = cursor.token
    if token is not None and token.kind == "string":
        return string_value(cursor.take().text)
    parts = [cursor.part()]
    while cursor.accept_symbol("."):
        parts.append(cursor.part())
    return ".".join(parts)


# --- the table that a statement describes -----------------------------------------------------------------------------


def field_of(column: Column) -> StructField:
    """The field of a column definition.  Raises ``InvalidArgumentError``."""
    kind, metadata = parse_sql_type(column.type)
    metadata = dict(metadata)
    if column.comment is not None:
        metadata["comment"] = column.comment
    if column.generated is not None:
        metadata[GENERATION_EXPRESSION] = column.generated
    if column.default is not None:
        metadata[CURRENT_DEFAULT] = column.default
    if column.identity is not None:
        start, step, explicit = column.identity
        if str(kind) != "long":
            raise InvalidArgumentError(
                f"an identity column must be BIGINT, got {column.type}",
                help="declare it as BIGINT",
                column=column.name,
                condition="IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            )
        if step == 0:
            raise InvalidArgumentError(
                "the step of an identity column must not be 0",
                help="write INCREMENT BY 1",
                column=column.name,
                condition="IDENTITY_COLUMNS_ILLEGAL_STEP",
            )
        metadata.update(identity_metadata(start, step, explicit=explicit))
    return StructField(column.name, kind, column.nullable, metadata)


def schema_of(call: Create) -> StructType:
    """The columns that a statement defines.  Raises ``InvalidArgumentError``."""
    return StructType(tuple(field_of(c) for c in call.columns))


def with_options(call: Create, format: str) -> Create:
    """Apply a statement's ``OPTIONS``: ``path`` is the location, others are properties.

    A Delta table takes those that begin with ``delta.``; options of Spark's own readers are ignored with a warning.
    Raises ``UnknownOptionError`` for any other option, ``InvalidArgumentError`` for two locations.

    >>> call = Create(("t",), True, False, False, options={"PATH": "/t", "delta.appendOnly": "true"})
    >>> with_options(call, "delta").location, with_options(call, "delta").properties
    ('/t', {'delta.appendOnly': 'true'})
    """
    path = next((v for k, v in call.options.items() if k.lower() == "path"), None)
    if path is not None and call.location is not None and path != call.location:
        raise InvalidArgumentError(
            f"LOCATION is {call.location}, but the option path is {path}", help="leave one of them out"
        )
    ignored = [k for k, v in call.options.items() if has_no_effect(k, v)]
    warn_ignored(ignored)
    rest = {k: v for k, v in call.options.items() if k.lower() != "path" and k not in ignored}
    unknown = sorted(k for k in rest if has_log(format) and not k.lower().startswith("delta."))
    if unknown:
        raise UnknownOptionError(
            f"unknown option {', '.join(map(repr, unknown))} of a new Delta table",
            help="OPTIONS take the path and delta.* properties; other properties go into TBLPROPERTIES, and storage"
            " options into the session's settings",
        )
    return replace(call, properties={**rest, **call.properties}, options={}, location=path or call.location)


def description_of(call: Create, schema: StructType) -> TableDescription:
    """Describe the new table, with these columns."""
    if not call.cluster_by:
        check_clustering_feature(call.properties, "DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED")
    fields = list(schema.fields)
    fields += [field_of(c) for c in call.partition_columns if schema.find(c.name) is None]
    properties, checks = stated_checks(call.properties)
    return TableDescription(
        StructType(tuple(fields)),
        call.partition_by,
        properties,
        call.comment,
        tuple(call.cluster_by),
        checks=(*call.checks, *checks),
    )


def create_mode(call: Create) -> CreateMode:
    """How the statement treats an existing table."""
    if call.replace:
        return "create_or_replace" if call.create else "replace"
    return "create_if_not_exists" if call.if_not_exists else "create"


def check_plain(call: Create, format: str) -> None:
    """Raise ``InvalidArgumentError`` for rules that only a Delta table has."""
    if call.cluster_by or call.checks or any(c.generated or c.default or c.identity for c in call.columns):
        raise InvalidArgumentError(
            f"{format} tables do not support constraints, defaults, generated columns or clustering",
            help="leave them out",
        )


def check_create_at(call: Create, format: str, path: str, *, exists: bool) -> None:
    """Check that a statement may create or replace the table at a path.

    Raises ``InvalidArgumentError`` for a second location, ``TableExistsError``, ``TableNotFoundError``.
    """
    if call.location is not None and open_store(call.location).uri != open_store(path).uri:
        raise InvalidArgumentError(
            f"the table's name refers to {path}, but LOCATION is {call.location}",
            help="leave LOCATION out",
            condition="DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE"
            if call.clone_of is None
            else "DELTA_CLONE_AMBIGUOUS_TARGET",
        )
    if exists and not call.replace and not call.if_not_exists:
        raise TableExistsError(
            f"a {format} table already exists at {path}",
            help="write CREATE OR REPLACE TABLE, or IF NOT EXISTS",
            file=path,
            condition="TABLE_OR_VIEW_ALREADY_EXISTS",
        )
    if not exists and not call.create:
        raise TableNotFoundError(
            "there is no table to replace",
            help="write CREATE OR REPLACE",
            file=path,
            condition="TABLE_OR_VIEW_NOT_FOUND" if call.clone_of is None else "DELTA_CANNOT_REPLACE_MISSING_TABLE",
        )


def write_of_query(
    call: Create, schema: StructType, table: TableDescription, *, there: bool, managed: bool
) -> WriteRequest:
    """The write of CREATE TABLE AS SELECT; ``there`` indicates whether a table exists.

    Raises ``SchemaMismatchError`` for an existing table, unless the statement replaces it.
    """
    if there and not call.replace:
        raise SchemaMismatchError(
            "the table already exists",
            help="write INSERT INTO, or CREATE OR REPLACE TABLE",
            condition="DELTA_PATH_EXISTS",
        )
    verb = " OR ".join(w for w, present in (("CREATE", call.create), ("REPLACE", call.replace)) if present)
    return WriteRequest(
        mode="overwrite" if call.replace else "ignore" if call.if_not_exists else "error",
        schema=schema,
        schema_mode="overwrite" if call.replace else None,
        operation=f"{verb} TABLE AS SELECT",
        parameters={
            "isManaged": "true" if managed else "false",
            "description": call.comment,
            "partitionBy": list(call.partition_by),
            "clusterBy": [format_path(c) for c in call.cluster_by],
            "properties": dict(call.properties),
        },
        description=table,
    )


def description_like(source: DeltaLog, call: Create) -> TableDescription:
    """Describe a table like another one: columns, partitions, clustering, properties, constraints and protocol."""
    head = source.head()
    configuration, specs, protocol = head.metadata.configuration, known_properties(), head.protocol
    # Properties that the library sets belong to one table only.
    properties = {k: v for k, v in configuration.items() if k not in specs or specs[k].set_by is None}
    if protocol.writer_features is not None:
        properties |= {f"{FEATURE}{name}": "supported" for name in protocol.writer_features}
    else:
        properties[MIN_READER] = str(protocol.min_reader_version)
        properties[MIN_WRITER] = str(protocol.min_writer_version)
    properties, checks = stated_checks({**properties, **call.properties})
    return TableDescription(
        head.schema,
        tuple(head.metadata.partition_columns),
        properties,
        call.comment if call.comment is not None else head.metadata.description,
        cluster_by=tuple(clustering_columns(head)),
        checks=checks,
    )
