"""INSERT into trilake tables: by position, by name, with a column list, into partitions, and with REPLACE WHERE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.common.text import columns_help, quote_name, quote_parts
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.type_widening import AutomaticWidening
from trilake.delta.rules.defaults import default_expression
from trilake.delta.rules.identity import identity_columns
from trilake.delta.rules.store_assignment import check_structs_whole
from trilake.delta.scan.generated import generation_expression
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TrilakeError, stating
from trilake.spark.delta.settings import (
    AUTO_MERGE,
    KEEP_NULL_STRUCTS,
    NULLS_FOR_MISSING,
    overwrites_dynamically,
    session_widening,
)
from trilake.spark.delta.storing.store_assignment import (
    as_they_are,
    is_case_sensitive,
    named_columns,
    overflows_named,
    stored_columns,
)
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.format import spark_format_named
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import session_flag
from trilake.sql.parser.changes import (
    Insert,
    check_plain_insert,
    expected_columns,
    own_partitions,
    parse_inserts,
    wrong_number_of_columns,
)
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import with_defaults
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session import entries
from trilake.sql.spark.session.frames import frame_of, head_of
from trilake.sql.spark.session.relations import query
from trilake.sql.spark.session.session import SqlSession, nothing
from trilake.sql.spark.session.targets import Target, whole_table_of
from trilake.table.format import TableWrite, parse_mode

#: Options that the statement decides, not the session's settings.
_DECIDED = ("partitionOverwriteMode", "mergeSchema")


def run_insert(session: SqlSession, sql: str, args: Args) -> DataFrame:
    """Run the INSERTs of a statement; those into other tables run in Spark."""
    if _is_directory(sql):
        return query(session, sql, args)  # only its query can name trilake tables
    for insert in parse_inserts(sql):
        target = whole_table_of(session, insert.parts)
        if target is None:
            _into_spark(session, insert, args)
        elif target.has_log:
            _into_delta(session, target, insert, args)
        else:
            _into_other(session, target, insert, args)
    return nothing(session)


def _is_directory(sql: str) -> bool:
    """Whether the statement is ``INSERT OVERWRITE DIRECTORY``: plain files, which Spark writes."""
    cursor = Cursor(sql)
    return any(Cursor(sql, cursor.tokens, i).is_word("DIRECTORY") for i in range(1, min(5, len(cursor.tokens))))


def _into_spark(session: SqlSession, insert: Insert, args: Args) -> None:
    frame = query(session, insert.query, args)
    name = quote_parts(insert.parts)
    private = session.private_name()
    with session.private_views({private: frame}):
        partition_columns = [
            *(f"{quote_name(k)} = {v}" for k, v in insert.static.items()),
            *map(quote_name, insert.dynamic),
        ]
        partition = f" PARTITION ({', '.join(partition_columns)})" if partition_columns else ""
        columns = "" if insert.columns is None else f" ({', '.join(map(quote_name, insert.columns))})"
        how = "OVERWRITE TABLE" if insert.overwrite else "INTO"
        unless = " IF NOT EXISTS" if insert.if_not_exists else ""
        by_name = " BY NAME" if insert.by_name else ""
        session.run(f"INSERT {how} {name}{partition}{unless}{by_name}{columns} SELECT * FROM {private}")


def _into_delta(session: SqlSession, target: Target, insert: Insert, args: Args) -> None:
    head = head_of(session, target)
    metadata = head.metadata
    schema = named_columns(session.spark, read_schema(metadata.schema))
    exact = is_case_sensitive(session.spark)
    static = own_partitions(insert.static, insert.dynamic, metadata.partition_columns, target.path, exact=exact)
    if insert.if_not_exists and _partition_exists(session, target, static):
        return
    evolve = insert.evolve or session_flag(session.spark, AUTO_MERGE, False)
    frame, by_name = _rows_of(session, insert, schema, static, args, target, evolve=evolve)
    if insert.by_name and not evolve:
        _check_whole(frame, schema)
    widening, rows = AutomaticWidening.of(metadata, session_widening(session.spark)), frame
    # As in delta-spark, where Spark itself casts the columns of a list and those beside a static partition.
    fill = insert.columns is None and not static and not session_flag(session.spark, KEEP_NULL_STRUCTS, False)
    frame = stored_columns(rows, schema, by_name=by_name, evolve=evolve, widening=widening, fill_null_structs=fill)
    where, dynamic = insert.replace_where, False
    if insert.overwrite and where is None:
        dynamic = bool(metadata.partition_columns) and overwrites_dynamically(session.spark)
        if static and not dynamic:
            where = " AND ".join(
                f"{quote_name(c)} IS NULL" if (v.strip().upper() == "NULL") else f"{quote_name(c)} = {v}"
                for c, v in static.items()
            )
    request = WriteRequest(
        mode="overwrite" if insert.overwrite else "append",
        schema=from_spark(frame.schema, limits=True),
        replace_where=where,
        partition_overwrite="dynamic" if dynamic else "static",
        schema_mode="merge" if evolve else None,
        fills_absent=True,
    )
    absent = stating({"DELTA_MISSING_NOT_NULL_COLUMN_VALUE": "DELTA_INSERT_COLUMN_MISMATCH"})
    with absent, overflows_named(narrowed=frame is not rows):
        write_dataframe(frame, target.path, target.options, request, decided=_DECIDED, seen=head)
    if evolve:
        entries.refresh(session, target)


def _check_whole(frame: DataFrame, schema: StructType) -> None:
    try:
        row_schema = from_spark(frame.schema)
    except TrilakeError:  # a type that Delta lacks, which the cast or the write rejects
        return
    check_structs_whole(row_schema, schema)


def _into_other(session: SqlSession, target: Target, insert: Insert, args: Args) -> None:
    check_plain_insert(insert, target.display_name, target.path)
    there = frame_of(session, target).schema
    schema = read_schema(from_spark(there))
    frame, by_name = _rows_of(session, insert, schema, {}, args, target)
    frame = stored_columns(frame, schema, by_name=by_name)
    missing = [f for f in there.fields if f.name not in frame.columns]
    frame = frame.select("*", *(F.lit(None).cast(f.dataType).alias(f.name) for f in missing)).select(
        *(quote_name(n) for n in there.names)
    )
    mode = "overwrite" if insert.overwrite else "append"
    spark_format_named(target.format).write(frame, target.path, target.options, TableWrite(parse_mode(mode)))


def _partition_exists(session: SqlSession, target: Target, static: Mapping[str, str]) -> bool:
    frame = frame_of(session, target)
    for column, sql in static.items():
        frame = frame.where(f"{quote_name(column)} <=> {sql}")
    return bool(frame.limit(1).collect())


def _rows_of(
    session: SqlSession,
    insert: Insert,
    schema: StructType,
    static: Mapping[str, str],
    args: Args,
    target: Target,
    *,
    evolve: bool = False,
) -> tuple[DataFrame, bool]:
    """The query's rows under the names of the table's columns, and whether structs are matched by name."""
    expected = expected_columns(insert, schema, static, display_name=target.display_name, path=target.path)
    sql, absent = with_defaults(insert.query, schema, expected)
    frame = query(session, sql, _args_of_query(insert, args))
    by_name = insert.by_name
    if by_name:
        frame = _by_name(frame, schema, static, evolve)
    else:
        listed = insert.columns is not None
        by_name = as_they_are(frame.schema, expected, schema, evolve=evolve, ordered=listed)
        beyond = frame.columns[len(expected) :]
        if evolve and insert.columns is None and not any(schema.find(name) for name in beyond):
            expected += beyond  # new columns of the table
        if len(frame.columns) != len(expected):
            raise wrong_number_of_columns(
                insert, len(frame.columns), expected, display_name=target.display_name, path=target.path
            )
        frame = frame if frame.columns == list(expected) else frame.toDF(*expected)
    if not session_flag(session.spark, NULLS_FOR_MISSING, True):
        _check_no_column_missing(schema, [*frame.columns, *static], target)
    if absent:
        frame = frame.select(*(quote_name(c) for c in frame.columns if c not in absent))
    if static:
        frame = frame.select("*", *(F.expr(v).alias(c) for c, v in static.items()))
    return frame, by_name


def _check_no_column_missing(schema: StructType, given: Iterable[str], target: Target) -> None:
    """Reject rows that lack a column of the table, unless the table computes it."""
    filled = {f.name for n in given if (f := schema.find(n)) is not None} | {c.name for c in identity_columns(schema)}
    plain = [f for f in schema.fields if default_expression(f) is None and generation_expression(f) is None]
    missing = [f.name for f in plain if f.name not in filled]
    if missing:
        raise SchemaMismatchError(
            f"INSERT into {target.display_name} lacks {', '.join(missing)}, and {NULLS_FOR_MISSING} is false",
            help="name a value for each column, give the columns defaults, or unset the setting",
            file=target.path,
            condition="DELTA_INSERT_COLUMN_MISMATCH",
        )


def _args_of_query(insert: Insert, args: Args) -> Args:
    if args is None or isinstance(args, Mapping):
        return args
    return list(args)[insert.markers_before :] or None


def _by_name(frame: DataFrame, schema: StructType, static: Mapping[str, str], evolve: bool) -> DataFrame:
    names = []
    for name in frame.columns:
        field = schema.find(name)
        if field is None and not evolve:
            raise SchemaMismatchError(
                f"column {name!r} not found in the table",
                help=columns_help(name, schema.names),
                column=name,
                condition="DELTA_METADATA_MISMATCH",
            )
        if field is not None and field.name in static:
            raise InvalidArgumentError(
                f"column {name} is both in PARTITION and in the query", help="leave one of them out", column=name
            )
        names.append(name if field is None else field.name)
    return frame.toDF(*names)
