"""INSERT into our tables: by position, by name, with a list of columns, into partitions, in place of some rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.delta.commands.write.write import WriteRequest
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.defaults import default_text
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.delta.store_assignment import stored
from trilake.spark.delta.write import write_dataframe
from trilake.spark.lance import frames as lance_frames
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.trevni import write as trevni_write
from trilake.sql.session import catalogue
from trilake.sql.session.expressions import spans
from trilake.sql.session.frames import frame_of, open_delta
from trilake.sql.session.relations import query
from trilake.sql.session.results import nothing
from trilake.sql.session.session import Args, SqlSession
from trilake.sql.session.table_of import known_table
from trilake.sql.session.targets import Target
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.places import Edit, Edited
from trilake.sql.text.tokens import Token, depths, quote_name

_AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
#: What a statement says itself, and no setting of the session.
_DECIDED = ("partitionOverwriteMode", "mergeSchema")
#: Words that begin a query.
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")


@dataclass(frozen=True)
class Insert:
    """One INSERT as it was written; ``static`` are the partitions' values as SQL, ``dynamic`` those without a value."""

    parts: tuple[str, ...]
    overwrite: bool
    static: Mapping[str, str]
    dynamic: tuple[str, ...]
    if_not_exists: bool
    by_name: bool
    columns: tuple[str, ...] | None
    replace_where: str | None
    evolve: bool
    query: str
    #: How many ``?`` stand in front of the query.
    markers_before: int = 0


def parse_inserts(text: str) -> list[Insert]:
    """The INSERTs of a statement: one, or several that read one FROM.  Raises ``SyntaxProblem``."""
    cursor = Cursor(text)
    inside = depths(cursor.tokens)
    starts = [i for i, t in enumerate(cursor.tokens) if t.upper == "INSERT" and inside[i] == 0 and _begins(cursor, i)]
    before = text[: cursor.tokens[starts[0]].start]
    ends = [*starts[1:], len(cursor.tokens)]
    out = []
    for start, end in zip(starts, ends, strict=True):
        piece = Cursor(text, cursor.tokens[:end], start)
        found = parse_insert(piece)
        out.append(replace(found, query=f"{before}{found.query}"))
    return out


def _begins(cursor: Cursor, at: int) -> bool:
    behind = Cursor(cursor.text, cursor.tokens, at + 1)
    return behind.is_any("INTO", "OVERWRITE", "WITH")


def parse_insert(cursor: Cursor) -> Insert:
    """One INSERT.  Raises ``SyntaxProblem``."""
    cursor.expect("INSERT")
    evolve = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = cursor.accept("OVERWRITE")
    if overwrite:
        cursor.accept("INTO")
    else:
        cursor.expect("INTO")
    cursor.accept("TABLE")
    parts = cursor.name()
    static: dict[str, str] = {}
    dynamic: list[str] = []
    if cursor.accept("PARTITION"):
        start, end = cursor.brackets()
        for a, b in spans(Cursor(cursor.text[start:end])):
            piece = Cursor(cursor.text[start + a : start + b])
            column = piece.part()
            if piece.accept_symbol("=") or piece.accept_symbol("=="):
                static[column] = piece.rest()
            else:
                dynamic.append(column)
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    by_name = cursor.accept("BY", "NAME")
    where = None
    if cursor.accept("REPLACE", "WHERE"):
        a, b = cursor.until(*QUERY_WORDS)
        where, overwrite = cursor.text[a:b], True
    columns = None
    if not by_name and cursor.is_symbol("(") and not _is_query(cursor):
        a, b = cursor.brackets()
        columns = tuple(Cursor(cursor.text[a:b][x:y]).part() for x, y in spans(Cursor(cursor.text[a:b])))
    if cursor.accept("REPLACE", "WHERE"):
        a, b = cursor.until(*QUERY_WORDS)
        where, overwrite = cursor.text[a:b], True
    if cursor.token is None:
        cursor.fail()
    markers = sum(t.text == "?" and t.kind == "marker" for t in cursor.tokens[: cursor.at])
    rest = cursor.rest()
    return Insert(
        parts, overwrite, static, tuple(dynamic), if_not_exists, by_name, columns, where, evolve, rest, markers
    )


def _is_query(cursor: Cursor) -> bool:
    """Whether the bracket that follows holds a query and no list of columns."""
    look = Cursor(cursor.text, cursor.tokens, cursor.at)
    while look.accept_symbol("("):
        pass
    if not look.is_any(*QUERY_WORDS):
        return False
    return not (look.is_symbol(",", ahead=1) or look.is_symbol(")", ahead=1))


def run_insert(session: SqlSession, text: str, args: Args) -> DataFrame:
    """Run the INSERTs of a statement; those into tables that are not ours go to Spark."""
    for insert in parse_inserts(text):
        insert_into(session, insert, args)
    return nothing(session)


def insert_into(session: SqlSession, insert: Insert, args: Args) -> None:
    """Run one INSERT."""
    found = known_table(session, insert.parts)
    if found is None:
        _into_spark(session, insert, args)
        return
    if found.format == "delta":
        _into_delta(session, found, insert, args)
    else:
        _into_other(session, found, insert, args)


def _into_spark(session: SqlSession, insert: Insert, args: Args) -> None:
    """A table of Spark's own takes rows that come from tables of ours."""
    frame = query(session, insert.query, args)
    name = ".".join(quote_name(p) for p in insert.parts)
    private = session.private_name()
    with session.private_views({private: frame}):
        given = [*(f"{quote_name(k)} = {v}" for k, v in insert.static.items()), *map(quote_name, insert.dynamic)]
        partition = f" PARTITION ({', '.join(given)})" if given else ""
        columns = "" if insert.columns is None else f" ({', '.join(map(quote_name, insert.columns))})"
        how = "OVERWRITE TABLE" if insert.overwrite else "INTO"
        unless = " IF NOT EXISTS" if insert.if_not_exists else ""
        by_name = " BY NAME" if insert.by_name else ""
        session.run(f"INSERT {how} {name}{partition}{unless}{by_name}{columns} SELECT * FROM {private}")


# --- rows ------------------------------------------------------------------------------------------------------------


def _into_delta(session: SqlSession, target: Target, insert: Insert, args: Args) -> None:
    table = open_delta(session, target)
    metadata = table.metadata
    schema = read_schema(metadata.schema)
    static = _static(insert, schema, metadata.partition_columns, target)
    if insert.if_not_exists and _partition_exists(session, target, static):
        return
    frame = _given(session, insert, schema, static, args, target)
    evolve = insert.evolve or session.setting(_AUTO_MERGE, "false").lower() == "true"
    frame = _stored(session, frame, schema, by_name=insert.by_name)
    where, dynamic = insert.replace_where, False
    if insert.overwrite and where is None:
        dynamic = bool(metadata.partition_columns) and session.setting(_OVERWRITE_MODE, "static").lower() == "dynamic"
        if static and not dynamic:
            where = " AND ".join(
                f"{quote_name(c)} IS NULL" if _is_null(v) else f"{quote_name(c)} = {v}" for c, v in static.items()
            )
    request = WriteRequest(
        mode="overwrite" if insert.overwrite else "append",
        schema=from_spark(frame.schema),
        replace_where=where,
        partition_overwrite="dynamic" if dynamic else "static",
        schema_mode="merge" if evolve else None,
    )
    write_dataframe(frame, target.path, {}, request, decided=_DECIDED)
    if evolve:
        catalogue.refresh(session, target)


def _is_null(text: str) -> bool:
    return text.strip().upper() == "NULL"


def _into_other(session: SqlSession, target: Target, insert: Insert, args: Args) -> None:
    if insert.static or insert.dynamic or insert.replace_where is not None or insert.if_not_exists:
        raise InvalidArgumentError(f"a {target.format.title()} table takes whole rows only", file=target.path)
    there = frame_of(session, target).schema
    schema = from_spark(there)
    frame = _stored(session, _given(session, insert, schema, {}, args, target), schema, by_name=insert.by_name)
    missing = [f for f in there.fields if f.name not in frame.columns]
    frame = frame.select("*", *(F.lit(None).cast(f.dataType).alias(f.name) for f in missing)).select(
        *(quote_name(n) for n in there.names)
    )
    mode = "overwrite" if insert.overwrite else "append"
    if target.format == "lance":
        from trilake.lance.table import write_options  # late: its messages take time to load
        from trilake.spark.lance.vectors import Vectors

        lance_frames.write_dataframe(
            frame, target.path, {}, mode=mode, options=write_options({}), vectors=Vectors.of(None, None)
        )
    else:
        from trilake.trevni.tables.table_write import write_options as trevni_options  # late, as above

        trevni_write.write_dataframe(frame, target.path, {}, mode=mode, partition_by=None, options=trevni_options({}))


def _static(insert: Insert, schema: StructType, partition_columns: Sequence[str], target: Target) -> dict[str, str]:
    """The values of the partitions by the columns' own names.  Raises ``InvalidArgumentError``."""
    inside = {c.lower(): c for c in partition_columns}
    for name in (*insert.static, *insert.dynamic):
        if name.lower() not in inside:
            raise InvalidArgumentError(
                f"PARTITION clause cannot contain the non-partition column {name}",
                help=f"the partition columns are {', '.join(partition_columns) or 'none'}",
                file=target.path,
                column=name,
            )
    return {inside[name.lower()]: text for name, text in insert.static.items()}


def _partition_exists(session: SqlSession, target: Target, static: Mapping[str, str]) -> bool:
    frame = frame_of(session, target)
    for column, text in static.items():
        frame = frame.where(f"{quote_name(column)} <=> {text}")
    return bool(frame.limit(1).collect())


def _given(
    session: SqlSession, insert: Insert, schema: StructType, static: Mapping[str, str], args: Args, target: Target
) -> DataFrame:
    """The rows under the names of the table's columns that they are for."""
    expected = _expected(insert, schema, static, target)
    text, absent = _with_defaults(insert.query, schema, expected)
    frame = query(session, text, _args_of_query(insert, args))
    if insert.by_name:
        frame = _by_name(frame, schema, static, insert.evolve)
    else:
        if len(frame.columns) != len(expected):
            more = "more" if len(frame.columns) > len(expected) else "fewer"
            raise SchemaMismatchError(
                f"cannot write to {target.shown}: the query gives {more} columns ({len(frame.columns)}) than expected"
                f" ({len(expected)}: {', '.join(expected)})",
                help="give a value for each column, or name the columns, or write BY NAME",
                file=target.path,
            )
        frame = frame.toDF(*expected)
    if absent:
        frame = frame.select(*(quote_name(c) for c in frame.columns if c not in absent))
    if static:
        frame = frame.select("*", *(F.expr(v).alias(c) for c, v in static.items()))
    return frame


def _args_of_query(insert: Insert, args: Args) -> Args:
    if args is None or isinstance(args, Mapping):
        return args
    return list(args)[insert.markers_before :] or None


def _expected(insert: Insert, schema: StructType, static: Mapping[str, str], target: Target) -> list[str]:
    if insert.columns is None:
        return [n for n in schema.names if n not in static]
    out: list[str] = []
    for name in insert.columns:
        found = schema.find(name)
        if found is None:
            raise SchemaMismatchError(
                f"{target.shown} has no column {name}",
                help=f"its columns are {', '.join(schema.names)}",
                file=target.path,
                column=name,
            )
        if found.name in out or found.name in static:
            raise InvalidArgumentError(f"column {name} is given twice", column=name, file=target.path)
        out.append(found.name)
    return out


def _by_name(frame: DataFrame, schema: StructType, static: Mapping[str, str], evolve: bool) -> DataFrame:
    names = []
    for name in frame.columns:
        found = schema.find(name)
        if found is None and not evolve:
            raise SchemaMismatchError(
                f"the query gives a column {name}, which the table has not",
                help=f"its columns are {', '.join(schema.names)}",
                column=name,
            )
        if found is not None and found.name in static:
            raise InvalidArgumentError(f"column {name} is given by PARTITION already", column=name)
        names.append(name if found is None else found.name)
    return frame.toDF(*names)


def _stored(session: SqlSession, frame: DataFrame, schema: StructType, *, by_name: bool) -> DataFrame:
    """The values in the types of the table's columns; what does not fit fails."""
    ansi = session.setting("spark.sql.ansi.enabled", "true") == "true"
    wanted = {f.name: f.dataType for f in to_spark(schema).fields}
    columns = []
    for f in frame.schema.fields:
        value, kind = F.col(quote_name(f.name)), wanted.get(f.name)
        if kind is not None and f.dataType != kind:
            value = _value(value, f.dataType, kind, f.name, ansi=ansi, by_name=by_name).alias(f.name)
        columns.append(value)
    return frame.select(*columns)


def _value(value: Column, source: T.DataType, target: T.DataType, name: str, *, ansi: bool, by_name: bool) -> Column:
    """A value as its column stores it.

    A struct of another type is taken apart by the order of its fields, as the columns are, and is no null any more:
    that is how Delta's own engine stores it.
    """
    if by_name or not isinstance(source, T.StructType) or not isinstance(target, T.StructType):
        found = stored(value, source, target, name, ansi=ansi)
        # What may be null inside of the column may be so in the rows.
        return found if isinstance(target, T.AtomicType) else found.cast(target)
    if len(source) == len(target):
        fields = [
            (
                _value(value.getField(s.name), s.dataType, t.dataType, f"{name}.{t.name}", ansi=ansi, by_name=False)
                if s.dataType != t.dataType
                else value.getField(s.name)
            ).alias(t.name)
            for s, t in zip(source.fields, target.fields, strict=True)
        ]
        return F.struct(*fields).cast(target)
    return stored(value, source, target, name, ansi=ansi).cast(target)


# --- DEFAULT ---------------------------------------------------------------------------------------------------------


def _with_defaults(text: str, schema: StructType, expected: Sequence[str]) -> tuple[str, set[str]]:
    """The query with the defaults of columns in place of the word DEFAULT, and the columns of which it gives nothing
    else."""
    if not any(t.upper == "DEFAULT" for t in Cursor(text).tokens):
        return text, set()
    lists = _value_lists(text)
    said: dict[int, list[Token]] = {}
    for row in lists:
        for i, (tokens, _) in enumerate(row):
            if len(tokens) == 1 and tokens[0].upper == "DEFAULT":
                said.setdefault(i, []).append(tokens[0])
    edits, absent = [], set()
    for i, tokens in said.items():
        if i >= len(expected):
            continue
        field = schema.field(expected[i])
        whole = len(tokens) == len(lists)
        if whole:
            absent.add(field.name)
        value = "NULL" if whole else default_text(field) or "NULL"
        edits += [Edit(t.start, t.end, value if value == "NULL" else f"({value})") for t in tokens]
    return Edited.of(text, edits).text, absent


def _value_lists(text: str) -> list[list[tuple[list[Token], Any]]]:
    """The rows of VALUES, or the one of SELECT, as the tokens of their parts."""
    cursor = Cursor(text)
    if cursor.accept("VALUES"):
        out = []
        while True:
            if cursor.is_symbol("("):
                a, b = cursor.brackets()
                out.append(_parts(cursor, a, b))
            else:
                a, b = cursor.until(symbols=",")
                out.append(_parts(cursor, a, b))
            if not cursor.accept_symbol(","):
                return out
    if cursor.accept("SELECT"):
        a, b = cursor.until("FROM", "WHERE", "UNION", "EXCEPT", "INTERSECT", "LIMIT", "ORDER")
        return [_parts(cursor, a, b)]
    return []


def _parts(cursor: Cursor, start: int, end: int) -> list[tuple[list[Token], Any]]:
    inside = [t for t in cursor.tokens if start <= t.start and t.end <= end]
    out: list[tuple[list[Token], Any]] = [([], None)]
    level = 0
    for t in inside:
        if t.kind == "symbol" and t.text in "([":
            level += 1
        elif t.kind == "symbol" and t.text in ")]":
            level -= 1
        if t.kind == "symbol" and t.text == "," and level == 0:
            out.append(([], None))
        else:
            out[-1][0].append(t)
    return out
