"""Parse CREATE and REPLACE TABLE with Delta's extensions, including column constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trilake.delta.protocol.sql_types import check_collation
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.changes import QUERY_WORDS
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.expressions import split_names
from trilake.sql.parser.paths import named_path
from trilake.sql.parser.tokens import unquoted

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
    markers_before: int = 0


def parse_create(cursor: Cursor) -> Create | None:
    """Parse the statement; ``None`` for any other one.  Raises ``SyntaxProblem``."""
    create = cursor.accept("CREATE")
    replace = cursor.accept("OR", "REPLACE") if create else cursor.accept("REPLACE")
    if not (create or replace) or (cursor.is_any("EXTERNAL") and not cursor.is_word("EXTERNAL", "TABLE")):
        return None
    external = cursor.accept("EXTERNAL")
    if not cursor.accept("TABLE"):
        return None
    if replace and cursor.is_word("IF", "NOT", "EXISTS"):
        cursor.fail()
    unless = cursor.accept("IF", "NOT", "EXISTS")
    parts = cursor.name()
    fields: dict[str, object] = {}
    if cursor.accept("LIKE"):
        fields["like"] = cursor.name()
    elif cursor.is_word("SHALLOW", "CLONE") or cursor.is_word("DEEP", "CLONE") or cursor.is_word("CLONE"):
        fields.update(_clone(cursor))
    elif cursor.is_symbol("(") and not _is_query(cursor):
        columns, checks = _columns(cursor)
        fields.update(columns=columns, checks=checks)
    _clauses(cursor, fields)
    query, markers = None, 0
    if fields.keys() & {"like", "clone_of"}:
        cursor.end()
    elif not cursor.done:
        if not (cursor.accept("AS") or cursor.is_symbol("(") or cursor.is_any(*QUERY_WORDS)):
            cursor.fail()
        markers = sum(t.text == "?" and t.kind == "marker" for t in cursor.tokens[: cursor.at])
        query = cursor.rest()
    call = Create(parts, create, replace, unless, query=query, markers_before=markers, **fields)  # type: ignore[arg-type]
    has_location = call.location is not None or "path" in map(str.lower, call.options)
    if external and not has_location and named_path(call.parts) is None:
        raise InvalidArgumentError(
            "CREATE EXTERNAL TABLE needs a location",
            help="add LOCATION '/path', or leave EXTERNAL out",
            condition="CREATE_EXTERNAL_TABLE_WITHOUT_LOCATION",
        )
    return call


def _is_query(cursor: Cursor) -> bool:
    look = Cursor(cursor.sql, cursor.tokens, cursor.at)
    while look.accept_symbol("("):
        pass
    return look.is_any("SELECT", "WITH", "FROM", "VALUES") and not (
        look.at + 1 < len(look.tokens) and look.tokens[look.at + 1].upper in ("INT", "STRING", "BIGINT", "DATE")
    )


def _clone(cursor: Cursor) -> dict[str, object]:
    shallow = cursor.accept("SHALLOW")
    cursor.accept("DEEP")
    cursor.expect("CLONE")
    is_path = cursor.token is not None and cursor.token.kind == "string"
    source = ("delta", unquoted(cursor.take())) if is_path else cursor.name()
    travel = None
    cursor.accept("FOR")
    for word in ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME"):
        if cursor.accept(word, "AS", "OF"):
            kind = "VERSION" if "VERSION" in word else "TIMESTAMP"
            travel = (kind, cursor.sql_until("TBLPROPERTIES", "LOCATION"))
    return {"clone_of": source, "shallow": shallow, "travel": travel}


def _columns(cursor: Cursor) -> tuple[tuple[Column, ...], tuple[tuple[str, str], ...]]:
    columns, checks = [], []
    for piece in map(Cursor, items(cursor.bracketed())):
        _refuse_key(piece)
        if piece.is_word("CONSTRAINT") and piece.is_word("CHECK", ahead=2):  # not a column named ``constraint``
            piece.expect("CONSTRAINT")
            name = piece.part()
            piece.expect("CHECK")
            checks.append((name, piece.bracketed()))
            piece.end()
        elif piece.is_word("CHECK") and piece.is_symbol("(", ahead=1):
            piece.expect("CHECK")
            checks.append((f"chk_{len(checks) + 1}", piece.bracketed()))
            piece.end()
        else:
            columns.append(parse_column(piece))
    return tuple(columns), tuple(checks)


def _refuse_key(piece: Cursor) -> None:
    offset = 2 if piece.is_any("CONSTRAINT") else 0
    for words in (("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("UNIQUE",)):
        if piece.is_word(*words, ahead=offset) and piece.is_symbol("(", ahead=offset + len(words)):
            raise InvalidArgumentError(
                f"{' '.join(words)} is not supported: it would not be enforced",
                help="leave it out; CHECK and NOT NULL constraints are enforced",
                condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
            )


def parse_column(cursor: Cursor) -> Column:
    """A column's name, type and rules.  Raises ``SyntaxProblem``."""
    name = cursor.part()
    cursor.accept_symbol(":")
    kind = parse_type(cursor)
    fields: dict[str, object] = {}
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
        else:
            cursor.fail()
    return Column(name, kind, **fields)  # type: ignore[arg-type]


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
        inside = Cursor(cursor.bracketed())
        while inside.token is not None:
            if inside.accept("START", "WITH") or inside.accept("START"):
                start = inside.whole_number()
            elif inside.accept("INCREMENT", "BY") or inside.accept("INCREMENT"):
                step = inside.whole_number()
            elif not inside.accept_symbol(","):
                inside.fail()
    fields["identity"] = (start, step, explicit)


def parse_type(cursor: Cursor) -> str:
    """Skip a type, such as ``array<int>`` or ``decimal(10, 2)``; its SQL."""
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
        elif cursor.accept("COMMENT"):
            fields["comment"] = cursor.string()
        elif cursor.accept("TBLPROPERTIES"):
            fields["properties"] = key_values(cursor)
        elif cursor.accept("OPTIONS"):
            fields["options"] = key_values(cursor)
        elif cursor.accept("DEFAULT", "COLLATION"):
            check_collation(cursor.part())
        else:
            _refuse_clause(cursor)
            return


#: Clauses for other formats, by their first words, and how errors name them.
_OTHERS = {
    ("CLUSTERED", "BY"): "bucketing",
    ("SKEWED", "BY"): "skewed values",
    ("ROW", "FORMAT"): "ROW FORMAT",
    ("STORED", "AS"): "STORED AS",
    ("STORED", "BY"): "STORED BY",
}


def _refuse_clause(cursor: Cursor) -> None:
    for words, what in _OTHERS.items():
        if cursor.is_word(*words):
            hint = "; CLUSTER BY keeps similar rows together" if words == ("CLUSTERED", "BY") else ""
            raise InvalidArgumentError(
                f"{what} is not supported", help=f"leave the clause out{hint}", condition="DELTA_OPERATION_NOT_ALLOWED"
            )


def _partitions(cursor: Cursor, fields: dict[str, object]) -> None:
    names, columns = [], []
    for piece in map(Cursor, items(cursor.bracketed())):
        if len(piece.tokens) == 1:
            names.append(piece.part())
        elif piece.is_symbol("(", ahead=1):
            raise InvalidArgumentError(
                f"a table must be partitioned by columns, got the expression {piece.sql.strip()}",
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
    for piece in map(Cursor, items(cursor.bracketed())):
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
        return unquoted(cursor.take())
    parts = [cursor.part()]
    while cursor.accept_symbol("."):
        parts.append(cursor.part())
    return ".".join(parts)
