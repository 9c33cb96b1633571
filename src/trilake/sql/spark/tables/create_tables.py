"""CREATE and REPLACE TABLE of trilake's formats: with columns, AS SELECT, LIKE, and CLONE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.common.text import quote_name, quote_parts, string_literal
from trilake.delta.commands.maintenance.clone import clone, no_versions, snapshot_of_parquet
from trilake.delta.commands.write.create import TableDescription, check_same_table, create_table
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.features import features_of
from trilake.delta.protocol.properties import parse_properties
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.rules.defaults import check_defaults_allowed
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TrilakeError, stating
from trilake.spark.catalog.entries import EntryContents
from trilake.spark.catalog.named_tables import refresh_entry
from trilake.spark.delta.convert import partition_fields_of
from trilake.spark.delta.maintenance import many_runner
from trilake.spark.delta.settings import default_properties, session_log
from trilake.spark.delta.storing.computed import judge_checks, judge_defaults, judge_generated
from trilake.spark.delta.table_builder import described_schema
from trilake.spark.delta.write import write_dataframe
from trilake.spark.patches.formats import FORMATS
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest
from trilake.spark.session.internals import SPARK_ERRORS
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.settings import UTC_ZONES, session_zone
from trilake.sql.parser.create import (
    Create,
    check_plain,
    create_mode,
    description_like,
    description_of,
    parse_create,
    schema_of,
    with_options,
    write_of_query,
)
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.literals import Args
from trilake.sql.parser.paths import parquet_path
from trilake.sql.parser.statements import CLONE, numbers
from trilake.sql.parser.tokens import Token, depths, tokenize
from trilake.sql.spark.session import entries, jvm
from trilake.sql.spark.session.frames import frame_of, moment_ms, open_delta
from trilake.sql.spark.session.placeholders import with_parameters
from trilake.sql.spark.session.relations import frame_of_name, names_trilake_table, query
from trilake.sql.spark.session.session import SqlSession, counts, nothing
from trilake.sql.spark.session.targets import (
    Target,
    find_entry,
    names_view,
    not_found,
    path_target,
    resolve,
    target_of,
    whole_table_of,
)
from trilake.sql.spark.tables.table_location import (
    TableLocation,
    choose_location,
    gets_entry,
    has_entry_at,
    name_first,
    named,
    no_columns,
)
from trilake.sql.spark.tables.view_statements import create_view, is_view
from trilake.table.registry import DEFAULT, format_of_provider, has_log


def _with_defaults(session: SqlSession, table: TableDescription) -> TableDescription:
    return replace(table, properties={**default_properties(session.spark), **table.properties})


#: Spark's condition for a partition column that is not among the columns.
_NO_PARTITION_COLUMN = "UNSUPPORTED_FEATURE.PARTITION_WITH_NESTED_COLUMN_IS_UNSUPPORTED"


def create_plain(session: SqlSession, call: Create, format: str, columns: StructType | None = None) -> DataFrame:
    """Create an empty table, or an entry for an existing one; ``columns`` replace those of ``call``.  Raises
    ``TableExistsError``, and ``SchemaMismatchError`` if the existing table differs from the statement."""
    location = choose_location(session, call, format)
    if location.exists and call.if_not_exists:
        return nothing(session)
    schema = schema_of(call) if columns is None else columns
    if not has_log(format):
        return _create_other(session, call, location, to_spark(schema))
    log = session_log(session.spark, session.store(location.path))
    table = replace(_with_defaults(session, description_of(call, schema)), managed=location.managed)
    is_new = False
    contents = EntryContents(to_spark(schema), call.comment, call.properties)
    with named(session, location, contents, call=call) as name:
        there = log.exists()
        replaced = location.managed and call.replace
        if there and not replaced and (location.needs_entry or (location.parts is None and not table.schema.fields)):
            check_same_table(log, description_of(call, schema))
        elif not table.schema.fields and call.replace:
            no_columns(location, exists=there)
        else:
            judge_checks(session.spark, table.schema, table.checks)
            judge_generated(session.spark, table.schema)
            features = set(parse_properties(table.properties).features)
            if there:
                features |= features_of(log.head().protocol)
            judge_defaults(session.spark, table.schema)
            check_defaults_allowed("CREATE TABLE", table.schema, features)
            with stating({"DELTA_PARTITION_COLUMN_NOT_FOUND": _NO_PARTITION_COLUMN}):
                result = create_table(log, table, mode=create_mode(call))
            is_new = result.is_new_table
            if not result.created:  # a concurrent statement created it
                check_same_table(log, description_of(call, schema))
        name(log, is_new)
    return nothing(session)


def create_by_catalog(
    session: SqlSession,
    parts: tuple[str, ...],
    format: str,
    schema: Any,
    comment: str | None,
    options: Mapping[str, str],
    spark_method: Callable[[], DataFrame],
) -> DataFrame:
    """Create a table, or an entry for the one at the options' path; return its rows.  ``spark_method`` is Spark's own
    method, which raises for an invalid ``schema``."""
    if not isinstance(schema, T.StructType | None):
        return spark_method()
    call = Create(parts, create=True, replace=False, if_not_exists=False, comment=comment, options=dict(options))
    create_plain(session, with_options(call, format), format, described_schema(schema or T.StructType()))
    target = resolve(session, parts)
    if target is None:  # dropped since
        raise not_found(parts)
    return frame_of_name(session, target)


def create_as_select(session: SqlSession, call: Create, format: str) -> DataFrame:
    """Create a table with the rows of a query, in one commit."""
    if call.columns or call.partition_columns:
        raise InvalidArgumentError(
            "CREATE TABLE AS SELECT does not accept a list of columns", help="leave it out: the columns are the query's"
        )
    assert call.query is not None
    location = choose_location(session, call, format)
    if location.exists and call.if_not_exists:
        return nothing(session)
    frame = query(session, call.query)
    if not has_log(format):
        return _create_other(session, call, location, frame.schema, frame)
    schema = from_spark(frame.schema, limits=True)
    log = session_log(session.spark, session.store(location.path))
    table = _with_defaults(session, description_of(call, schema))
    there = log.exists()
    request = write_of_query(call, schema, table, there=there, managed=location.managed)
    contents = EntryContents(frame.schema, call.comment, call.properties)
    with named(session, location, contents, call=call) as name:
        result = write_dataframe(frame, location.path, {}, request, decided=("partitionOverwriteMode", "mergeSchema"))
        name(log, result.version == 0 and (request.mode != "ignore" or result.files_added > 0))
    return nothing(session)


def create_like(session: SqlSession, call: Create, format: str) -> DataFrame:
    """Create an empty table with the columns of another table or view.  Raises ``TableNotFoundError``."""
    assert call.like is not None
    location = choose_location(session, call, format)
    if location.exists and call.if_not_exists:
        return nothing(session)
    source = resolve(session, call.like)
    if isinstance(source, Target) and source.has_log and has_log(format):
        table = description_like(source.log, call)
    else:
        if source is None:
            frame = session.run(f"SELECT * FROM {quote_parts(call.like)} LIMIT 0")
            inside = tuple(c.name for c in session.spark.catalog.listColumns(quote_parts(call.like)) if c.isPartition)
        else:
            frame, inside = frame_of_name(session, source), ()
        if not has_log(format):
            return _create_other(session, call, location, frame.schema)
        table = replace(description_of(call, from_spark(frame.schema, limits=True)), partition_by=inside)
    log = session_log(session.spark, session.store(location.path))
    contents = EntryContents(to_spark(table.schema), call.comment, call.properties)
    with named(session, location, contents, call=call) as name:
        result = create_table(log, replace(table, managed=location.managed), mode=create_mode(call))
        name(log, result.is_new_table)
    return nothing(session)


def create_clone(session: SqlSession, call: Create) -> DataFrame:
    """Clone a table; return its metrics."""
    source = clone_source(session, call)
    location = choose_location(session, call, DEFAULT)
    if location.exists and call.if_not_exists:
        return nothing(session)
    into = session_log(session.spark, session.store(location.path))
    with named(session, location, EntryContents.of(source.snapshot), call=call) as name:
        result = clone(
            source.snapshot,
            source.log,
            into,
            shallow=call.shallow,
            replace_target=call.replace,
            properties=call.properties,
            parquet=source.parquet,
            name=source.name,
            run=many_runner(session.spark, source.log.store, least=32),
        )
        name(into, result.version == 0)
    return counts(session, **numbers(result, CLONE))


def _create_other(
    session: SqlSession, call: Create, location: TableLocation, schema: T.StructType, frame: DataFrame | None = None
) -> DataFrame:
    """Create the files and the entry, or an entry for an existing table."""
    check_plain(call, location.format)
    new, store = location.needs_entry, session.store(location.path)
    if new and frame is None and not location.managed and next(iter(store.list()), None) is not None:
        return _name_existing(session, call, location, schema)
    if not schema.fields:
        no_columns(location)
    rows = session.spark.createDataFrame([], schema) if frame is None else frame
    mode = "overwrite" if call.replace else "error"
    request = SaveRequest(rows, location.format, mode, dict(call.properties), call.partition_by or None)
    contents = _contents(call, schema)
    if new and location.managed and not session.classic:
        with name_first(session, location, contents):
            FORMATS[location.format].save(request, location.path)
        return nothing(session)
    try:
        FORMATS[location.format].save(request, location.path)
    except (TableExistsError, InvalidArgumentError):
        if new and call.if_not_exists and gets_entry(session, location):
            return nothing(session)
        raise
    if new:
        assert location.parts is not None
        try:
            entries.add(
                session, location.parts, location.path, contents, format=location.format, managed=location.managed
            )
        except (TrilakeError, *SPARK_ERRORS):
            if not has_entry_at(session, location):  # else a concurrent statement added it
                raise
    elif location.parts is not None and session.classic:
        name, managed = quote_parts(location.parts), location.managed
        refresh_entry(
            session.spark, name, location.path, store, location.format, contents, managed=managed, replaced=False
        )
    return nothing(session)


def _contents(call: Create, schema: T.StructType) -> EntryContents:
    return EntryContents(T.StructType([T.StructField(f.name, f.dataType, True) for f in schema.fields]), call.comment)


def _name_existing(session: SqlSession, call: Create, location: TableLocation, schema: T.StructType) -> DataFrame:
    """Add an entry for an existing table.  Raises ``SchemaMismatchError`` if it differs from the statement."""
    assert location.parts is not None
    target = Target(location.parts, location.format, location.path, options=session.options(location.path))
    have = frame_of(session, target).schema
    actual_columns = [f"{f.name} {f.dataType.simpleString()}" for f in have.fields]
    expected_columns = [f"{f.name} {f.dataType.simpleString()}" for f in schema.fields]
    if expected_columns and [w.lower() for w in expected_columns] != [s.lower() for s in actual_columns]:
        raise SchemaMismatchError(
            f"the {location.format} table already exists with different columns: {', '.join(actual_columns)}",
            help="leave the columns out, or use these",
            file=location.path,
        )
    if call.partition_by or call.properties:
        raise InvalidArgumentError(
            f"the {location.format} table exists, so its partitions and properties cannot be set",
            help="leave partitions, options and properties out",
            file=location.path,
        )
    entries.add(session, location.parts, location.path, _contents(call, have), format=location.format, managed=False)
    return nothing(session)


# --- The source of CLONE: a version of a Delta table, or Parquet files as if they were converted ----------------------


@dataclass(frozen=True)
class CloneSource:
    """The version to clone.  ``parquet`` is the URI of Parquet files without a log."""

    snapshot: Snapshot
    log: DeltaLog
    parquet: str | None = None
    name: str | None = None


def clone_source(session: SqlSession, call: Create) -> CloneSource:
    """Open the source of CLONE.  Raises ``TableNotFoundError``, and ``InvalidArgumentError`` for a view, for a format
    other than Delta and Parquet, and for a version of Parquet files."""
    assert call.clone_of is not None
    display_name = ".".join(call.clone_of)
    if names_view(session, call.clone_of):
        raise InvalidArgumentError(
            f"{display_name} is a view, and only tables can be cloned",
            help="name the table",
            condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
        )
    source = whole_table_of(session, call.clone_of)
    if source is None:
        return _of_parquet(session, call)
    if not source.has_log:
        raise InvalidArgumentError(
            f"only Delta tables and Parquet files can be cloned, but {source.display_name} is a {source.format} table",
            condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
        )
    version, ms = None, None
    if call.travel is not None and call.travel[0] == "VERSION":
        version = int(session.value(call.travel[1]))
    elif call.travel is not None:
        ms = moment_ms(session, call.travel[1])
    table = open_delta(session, source, version, ms)
    return CloneSource(table.snapshot, table.log, name=None if source.entry is None else source.catalog_name)


def _of_parquet(session: SqlSession, call: Create) -> CloneSource:
    parts = call.clone_of
    assert parts is not None
    path, fields = _files(session, parts)
    if call.travel is not None:
        raise no_versions(parts)
    store = session.store(path)
    zone = session_zone(session.spark)
    snapshot = snapshot_of_parquet(
        store,
        spark_engine(),
        partition_by=fields,
        timezone="UTC" if zone in UTC_ZONES else zone,
        run=many_runner(session.spark, store, least=16),
    )
    return CloneSource(snapshot, DeltaLog(store, spark_engine()), parquet=store.uri)


def _files(session: SqlSession, parts: tuple[str, ...]) -> tuple[str, list[str | StructField]]:
    """The files' location, and the partition columns: none for a path, as in CONVERT TO DELTA."""
    path = parquet_path(parts)
    if path is not None:
        return path, []
    entry = find_entry(session, parts)
    if entry is None:
        raise not_found(parts)
    if entry.is_view or entry.provider != "parquet" or entry.location is None:
        raise InvalidArgumentError(
            f"only Delta tables and Parquet files can be cloned, but {'.'.join(parts)} is neither",
            condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
        )
    return entry.location, partition_fields_of(session.spark, f"`{entry.database}`.`{entry.table}`")


def run_create(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    """Run a CREATE or REPLACE; ``None`` to leave it to Spark."""
    tokens = tokenize(sql)
    if is_view(tokens):
        return create_view(session, with_parameters(session, sql, args))
    if not _is_table(tokens):
        return query(session, sql, args) if names_trilake_table(session, sql, tokens) else None
    cloned = _is_clone(tokens)
    # Spark before 4.0 knows neither identity columns nor CLUSTER BY.
    older = session.spark.version.startswith("3.") and _names_format(tokens)
    if not cloned and not older and session.classic and not jvm.parses(session.parser, sql):
        return None  # Spark raises
    try:
        call = parse_create(Cursor(with_parameters(session, sql, args)))
    except SyntaxProblem:
        if cloned or _names_format(tokens):
            raise
        call = None
    if call is None:
        return query(session, sql, args) if names_trilake_table(session, sql, tokens) else None
    if call.clone_of is not None:
        return create_clone(session, with_options(call, DEFAULT))
    format = _format(session, call)
    if format is None:
        target = target_of(session, call.parts) if call.replace else None
        if target is not None:
            requested = "a table without USING" if call.provider is None else f"a {call.provider} table"
            raise InvalidArgumentError(
                f"{'.'.join(call.parts)} is a {target.format} table, which {requested} cannot replace",
                help=f"write USING {target.format} after the name, or set spark.sql.sources.default to {target.format};"
                " drop the table first to use another format",
                condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
            )
        source = None if call.like is None else target_of(session, call.like)
        if source is not None:
            return query(session, _like_as_select(call, source))
        return query(session, sql, args) if names_trilake_table(session, sql, tokens) else None
    call = with_options(call, format)
    if call.like is not None:
        return create_like(session, call, format)
    if call.query is not None:
        return create_as_select(session, call, format)
    return create_plain(session, call, format)


def _like_as_select(call: Create, source: Target) -> str:
    """A statement AS SELECT, without rows, for CREATE TABLE ... LIKE of a trilake table with one of Spark's formats, as
    Spark's LIKE does not support such sources."""
    assert call.like is not None
    partitions = source.log.head().metadata.partition_columns if source.has_log else ()
    clauses = [f"USING {quote_name(call.provider or '')}"]
    if partitions:
        clauses.append(f"PARTITIONED BY ({', '.join(map(quote_name, partitions))})")
    if call.location is not None:
        clauses.append(f"LOCATION {string_literal(call.location)}")
    if call.properties:
        pairs = (f"{string_literal(key)} = {string_literal(value)}" for key, value in call.properties.items())
        clauses.append(f"TBLPROPERTIES ({', '.join(pairs)})")
    unless = "IF NOT EXISTS " if call.if_not_exists else ""
    rows = f"SELECT * FROM {quote_parts(call.like)} LIMIT 0"
    return f"CREATE TABLE {unless}{quote_parts(call.parts)} {' '.join(clauses)} AS {rows}"


def _is_table(tokens: Sequence[Token]) -> bool:
    words = [t.upper for t in tokens[:4]]
    return "TABLE" in words and words[words.index("TABLE") - 1] in ("CREATE", "REPLACE", "EXTERNAL")


def _is_clone(tokens: Sequence[Token]) -> bool:
    inside = depths(tokens)
    for i, t in enumerate(tokens[:12]):
        if inside[i] == 0 and t.upper in ("AS", "USING", "SELECT"):
            return False
        if (
            t.upper == "CLONE"
            and inside[i] == 0
            and (tokens[i - 1].upper in ("SHALLOW", "DEEP") or tokens[i - 1].is_name)
        ):
            return tokens[i - 1].upper not in ("TABLE", "EXISTS") and tokens[i - 1].text != "."
    return False


def _names_format(tokens: Sequence[Token]) -> bool:
    """Whether the statement names a trilake format: ``USING delta`` or ``delta.`/path```."""
    inside = depths(tokens)
    for i, t in enumerate(tokens[:-1]):
        if inside[i] == 0 and t.upper == "USING" and format_of_provider(tokens[i + 1].name):
            return True
        if inside[i] == 0 and t.is_name and format_of_provider(t.name) and tokens[i + 1].text == ".":
            return True
        if inside[i] == 0 and t.upper in ("AS", "SELECT"):
            return False
    return False


def _format(session: SqlSession, call: Create) -> str | None:
    """The new table's format, ``None`` for one that is not trilake's."""
    if call.provider is not None:
        return format_of_provider(call.provider)
    by_path = path_target(session, call.parts)
    if by_path is not None:
        return by_path.format
    if call.like is not None:
        source = target_of(session, call.like)
        return None if source is None else source.format
    return format_of_provider(session.setting("spark.sql.sources.default", "parquet"))
