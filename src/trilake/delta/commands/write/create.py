"""CREATE TABLE and REPLACE TABLE.

A table is described by its columns, with their rules in the metadata (comments; generated, identity and default
columns), by partitioning or clustering, by properties and by a comment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from trilake.common.display import Displayed
from trilake.common.text import columns_help
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.engine import Engine
from trilake.delta.files.file_plan import check_provider
from trilake.delta.files.new_location import check_new_location
from trilake.delta.log.clustering import DOMAIN, chosen_clustering, clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.metadata.column_changes import RULES, ColumnsLike, new_columns
from trilake.delta.metadata.property_changes import add_constraint, prepared, with_required
from trilake.delta.metadata.write_schema import new_table
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID, check_names, mapped, max_column_id, reuse
from trilake.delta.protocol.features import check_writable, features_of, upgraded
from trilake.delta.protocol.properties import CONSTRAINTS, known_properties, parse_properties
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import PathLike, format_path, nested_fields, spelled, strip
from trilake.delta.protocol.table_features.row_tracking import ID_COLUMN, VERSION_COLUMN
from trilake.delta.rules.constraints import OF_NEW_TABLE
from trilake.delta.rules.defaults import CURRENT_DEFAULT, default_expression, parse_default
from trilake.delta.rules.identity import START as IDENTITY_START
from trilake.delta.rules.identity import identity_columns, identity_metadata
from trilake.delta.scan.generated import (
    GENERATION_EXPRESSION,
    generated_columns,
    generation_expression,
    reject_of_statement,
    reject_other_types,
)
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TableNotFoundError, stating

CreateMode = Literal["create", "create_if_not_exists", "replace", "create_or_replace"]
#: The condition of a location with other files.
NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
MODES: tuple[CreateMode, ...] = ("create", "create_if_not_exists", "replace", "create_or_replace")


@dataclass(frozen=True)
class TableDescription:
    """The description of a new table.

    ``cluster_by`` are clustering columns, which may be nested; it excludes ``partition_by``.
    """

    schema: StructType
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    cluster_by: tuple[PathLike, ...] = ()
    #: A name for users, if any.
    name: str | None = None
    #: The format of the data files: ``parquet`` for a new table; by default that of the replaced table.
    data_format: str | None = None
    #: CHECK constraints, as names and conditions.
    checks: tuple[tuple[str, str], ...] = ()
    #: Whether a catalog manages the table's files; only for the history.
    managed: bool = False


def stated_checks(properties: Mapping[str, str]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """The properties of a new table without its CHECK constraints, and these: ``delta.constraints.NAME`` states one.

    >>> stated_checks({"delta.constraints.positive": "id > 0", "owner": "me"})
    ({'owner': 'me'}, (('positive', 'id > 0'),))
    """
    names = {key: key[len(CONSTRAINTS) :] for key in properties if key.lower().startswith(CONSTRAINTS)}
    rest = {key: value for key, value in properties.items() if key not in names}
    return rest, tuple((name, properties[key]) for key, name in names.items())


@dataclass(frozen=True)
class CreateResult(Displayed):
    """The resulting version, and whether it is new."""

    version: int
    created: bool

    @property
    def is_new_table(self) -> bool:
        """Whether no table existed before."""
        return self.created and self.version == 0


def _steps(identity: object) -> dict[str, tuple[int, int]]:
    """Start and step of identity columns by name.  Raises ``InvalidArgumentError``."""
    pairs: list[tuple[object, object]]
    if isinstance(identity, Mapping):
        pairs = list(identity.items())
    else:
        names = identity if isinstance(identity, Iterable) and not isinstance(identity, str) else [identity]
        pairs = [(name, (1, 1)) for name in names]
    steps: dict[str, tuple[int, int]] = {}
    for name, pair in pairs:
        numbers = [n for n in pair if type(n) is int] if isinstance(pair, tuple | list) and len(pair) == 2 else []
        if not isinstance(name, str) or len(numbers) != 2:
            raise InvalidArgumentError(
                f"identity must be column names, or start and step by column name, got {name!r:.80} with {pair!r:.80}",
                help="pass for example {'id': (1, 1)}",
            )
        steps[name] = numbers[0], numbers[1]
    return steps


def with_rules(
    columns: ColumnsLike,
    generated: Mapping[str, str],
    identity: Mapping[str, tuple[int, int]] | Iterable[str] | str,
    defaults: Mapping[str, str],
    *,
    explicit: bool = False,
) -> StructType:
    """Add rules for missing values to the metadata of columns.

    Arrow fields, such as those of deltalake, may have the rules in their metadata, with the protocol's keys.  Raises
    ``InvalidArgumentError`` for a rule of an unknown column, and for two rules of one column.
    """
    steps = _steps(identity)
    if explicit and not steps:
        raise InvalidArgumentError(
            "identity_takes_values needs an identity column", help="leave it out, or pass identity"
        )
    ruled: dict[str, StructField] = {}
    kinds = (
        {n: {GENERATION_EXPRESSION: sql} for n, sql in generated.items()},
        {n: identity_metadata(start, step, explicit=explicit) for n, (start, step) in steps.items()},
        {n: {CURRENT_DEFAULT: sql} for n, sql in defaults.items()},
    )
    new = new_columns(columns)
    nested = [c for c in new if c.parent]
    if nested:
        raise InvalidArgumentError(
            f"column {nested[0].field.name!r} belongs to a column that does not exist",
            help="give the type of the whole column, such as struct<a: int>",
        )
    schema = StructType(tuple(c.field for c in new))
    for kind in kinds:
        for name, metadata in kind.items():
            column = schema.find(name)
            if column is None:
                raise InvalidArgumentError(
                    f"the table has no column {name!r}", help=columns_help(name, schema.names), column=name
                )
            if column.name in ruled:
                raise InvalidArgumentError(
                    f"column {column.name!r} has more than one rule for missing values",
                    help="make it a generated column, an identity column or a column with a default",
                    column=column.name,
                )
            rest = {k: v for k, v in column.metadata.items() if k not in RULES}
            ruled[column.name] = replace(column, metadata={**rest, **metadata})
    return StructType(tuple(ruled.get(f.name, f) for f in schema.fields))


def create_table(log: DeltaLog, table: TableDescription, *, mode: CreateMode = "create") -> CreateResult:
    """Create a table without rows, as one commit.

    ``mode`` is ``create``, which rejects an existing table, ``create_if_not_exists``, which keeps it, ``replace``,
    which requires one and replaces its rows and schema, or ``create_or_replace``.  A replaced table keeps its history,
    id and protocol features.

    Raises ``TableExistsError``, ``TableNotFoundError``, ``ConflictError``; ``InvalidArgumentError``,
    ``SchemaMismatchError`` or ``ExpressionError`` for an invalid description.
    """
    if mode not in MODES:
        raise InvalidArgumentError(
            f"mode {mode!r} is unknown", help=f"modes are {', '.join(MODES)}", condition="INVALID_SAVE_MODE"
        )
    try:
        base: Snapshot | None = log.snapshot()
    except TableNotFoundError:
        base = None
    if base is None and mode == "replace":
        raise TableNotFoundError(
            "there is no table to replace",
            help="create the table, or use create_or_replace",
            file=log.store.uri,
            condition="TABLE_OR_VIEW_NOT_FOUND",
        )
    if base is not None and mode == "create_if_not_exists":
        return CreateResult(base.version, created=False)
    if base is not None and mode == "create":
        raise TableExistsError(
            "a Delta table already exists at this location",
            help="use create_if_not_exists to keep it, or create_or_replace",
            file=log.store.uri,
            version=base.version,
            condition="TABLE_OR_VIEW_ALREADY_EXISTS",
        )
    if base is None:
        with stating({None: NOT_EMPTY if table.schema.fields else "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG"}):
            check_new_location(log.store, now_ms=log.engine.runtime.clock_ms())
    try:
        version = _commit(log, base, table, mode)
    except TableExistsError:
        if mode == "create":
            raise
        return create_table(log, table, mode=mode)  # another writer created it first
    return CreateResult(version, created=True)


def check_same_table(log: DeltaLog, table: TableDescription) -> None:
    """Check that an existing table, which gets a new name, matches its description.  Raises ``SchemaMismatchError``."""

    def differs(condition: str, message: str, help: str, **context: str) -> SchemaMismatchError:
        condition = f"DELTA_CREATE_TABLE_{condition}"
        return SchemaMismatchError(message, help=help, file=log.store.uri, condition=condition, **context)

    head = log.head()
    schema = head.schema
    if table.schema.fields:
        expected = [(f.name.lower(), str(f.type), f.nullable) for f in table.schema.fields]
        if sorted(expected) != sorted((f.name.lower(), str(f.type), f.nullable) for f in schema.fields):
            columns = ", ".join(f"{f.name} {f.type}" for f in schema.fields)
            message = f"the table already exists with different columns: {columns}"
            raise differs("SCHEME_MISMATCH", message, "leave the columns out, or use these")
        for f in table.schema.fields:
            there = schema.field(f.name)
            if generation_expression(f) != generation_expression(there):
                message = f"column {there.name} of the existing table is {_generated_as(there)}, not {_generated_as(f)}"
                help = "leave the columns out, or use those of the table"
                raise differs("SCHEME_MISMATCH", message, help, column=there.name)
            comments = [column.metadata.get("comment") for column in (f, there)]
            if comments[0] != comments[1]:
                message = (
                    f"column {there.name} of the existing table has the comment {comments[1]!r}, not {comments[0]!r}"
                )
                help = "leave the columns out, and change the comment with ALTER TABLE"
                raise differs("SCHEME_MISMATCH", message, help, column=there.name)
        if [c.lower() for c in table.partition_by] != [c.lower() for c in head.metadata.partition_columns]:
            there_by = ", ".join(head.metadata.partition_columns) or "no column"
            message = f"the table already exists and is partitioned by {there_by}"
            raise differs("WITH_DIFFERENT_PARTITIONING", message, "leave columns and PARTITIONED BY out, or use these")
        clustered = clustering_columns(head)
        if [spelled(schema, c) for c in table.cluster_by] != clustered:
            message = f"the existing table is clustered by {', '.join(map(format_path, clustered)) or 'no column'}"
            raise differs("WITH_DIFFERENT_CLUSTERING", message, "leave columns and CLUSTER BY out, or use these")
    properties = dict(parse_properties(table.properties).values)
    properties.update({CONSTRAINTS + name.lower(): condition for name, condition in table.checks})
    known = known_properties()
    current = {k: v for k, v in head.metadata.configuration.items() if k not in known or known[k].set_by is None}
    if properties and properties != current:
        message = f"the table exists with the properties {current}"
        help = "leave TBLPROPERTIES and CHECK out, and change them with ALTER TABLE"
        raise differs("WITH_DIFFERENT_PROPERTY", message, help)


def _generated_as(f: StructField) -> str:
    sql = generation_expression(f)
    return "not generated" if sql is None else f"generated as {sql}"


def _commit(log: DeltaLog, base: Snapshot | None, table: TableDescription, mode: CreateMode) -> int:
    protocol, metadata = described(table, base, log.engine, may_be_empty=mode in ("create", "create_if_not_exists"))
    domains = clustering_of(table, metadata, base)
    check_writable(protocol, uri=log.store.uri, version=0 if base is None else base.version + 1)
    now = log.engine.runtime.clock_ms()
    removes = [] if base is None else [remove_action(a, now) for a in base.adds.to_pylist()]
    operations = {"replace": "REPLACE TABLE", "create_or_replace": "CREATE OR REPLACE TABLE"}
    plan = CommitPlan(
        operation=operations.get(mode, "CREATE TABLE"),
        parameters={
            "isManaged": "true" if table.managed else "false",
            "description": table.comment,
            "partitionBy": list(metadata.partition_columns),
            "clusterBy": [format_path(spelled(metadata.schema, c)) for c in table.cluster_by],
            "properties": dict(table.properties),
        },
        file_actions=removes,
        metadata=metadata,
        protocol=protocol if base is None or protocol != base.protocol else None,
        read=ReadSet() if base is None else ReadSet(whole_table=True, removed=frozenset(base.adds["path"].to_pylist())),
        domains=domains,
    )
    return commit(log, base, plan)


def described(
    table: TableDescription, base: Snapshot | None, engine: Engine, *, may_be_empty: bool = False
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of a described table, which replaces ``base`` if that exists.

    With ``may_be_empty``, columns may be missing: the first rows or ALTER TABLE then add them.  Raises the errors of
    :func:`create_table`.
    """
    schema = strip(table.schema)
    spellings: dict[str, str] = {}
    for f in schema.fields:
        other = spellings.setdefault(f.name.lower(), f.name)
        if other is not f.name:
            raise InvalidArgumentError(
                f"two columns are named {other!r} and {f.name!r}", column=f.name, condition="COLUMN_ALREADY_EXISTS"
            )
    provider = "parquet" if base is None else base.metadata.provider
    if table.data_format is not None:
        provider = table.data_format.lower()
        check_provider(engine, provider, table.schema, "" if base is None else base.uri)
    protocol, metadata = new_table(
        schema,
        partition_by=table.partition_by,
        properties=table.properties,
        provider=provider,
        runtime=engine.runtime,
        description=table.comment,
        may_be_empty=may_be_empty,
    )
    metadata = replace(metadata, name=table.name)
    now, new_id = engine.runtime.now(), engine.runtime.new_id
    _check_rules(metadata, now)
    for name, condition in table.checks:
        with stating(OF_NEW_TABLE):
            constrained = add_constraint(protocol, metadata, name, condition, now=now)
        protocol, metadata = constrained.protocol, constrained.metadata
    if base is not None:
        protocol, metadata = _in_place_of(base, protocol, metadata, schema, new_id)
    metadata = prepared(None, metadata, new_id=new_id)
    check_names(metadata.schema, metadata.column_mapping_mode)
    required_features = ["invariants"] if any(not f.nullable for f in nested_fields(metadata.schema)) else []
    if table.cluster_by:
        required_features.append("clustering")
    protocol = with_required(protocol, metadata)
    return upgraded(protocol, metadata, required_features), metadata


def _in_place_of(
    base: Snapshot, protocol: Protocol, metadata: Metadata, schema: StructType, new_id: Callable[[], str]
) -> tuple[Protocol, Metadata]:
    base.check_writable()
    if base.adds.num_rows:
        base.check_removable(so="it cannot be replaced")
    # Older versions of the table, which may be restored, have row ids in the same columns of files.
    columns = {k: v for k, v in base.metadata.configuration.items() if k in (ID_COLUMN, VERSION_COLUMN)}
    metadata = replace(metadata, id=base.metadata.id, configuration={**metadata.configuration, **columns})
    if metadata.column_mapping_mode != "none":
        top = {MAX_COLUMN_ID: str(max_column_id(base.metadata))}
        with_ids = reuse(schema, base.schema) if base.metadata.column_mapping_mode != "none" else schema
        metadata = replace(metadata, schema_string=with_ids.json(), configuration={**metadata.configuration, **top})
        metadata = mapped(metadata, new_id=new_id)
    return upgraded(base.protocol, metadata, features_of(protocol)), metadata


def _check_rules(metadata: Metadata, now: dt.datetime) -> None:
    schema = metadata.schema
    for f in schema.fields:
        if (sql := generation_expression(f)) is not None:
            reject_of_statement(f.name, sql)
    generated_columns(schema, now)
    reject_other_types(schema, now)
    for f in schema.fields:
        if IDENTITY_START in f.metadata and str(f.type) != "long":
            raise InvalidArgumentError(
                f"column {f.name!r} is of type {f.type}, but an identity column must be bigint",
                help="use the type bigint",
                column=f.name,
                condition="DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            )
    identities = {c.name for c in identity_columns(schema)}
    for f in schema.fields:
        default = default_expression(f)
        kinds = [generation_expression(f) is not None, f.name in identities, default is not None]
        if sum(kinds) > 1:
            raise InvalidArgumentError(
                f"column {f.name} can be only one of these: a generated column, an identity column, a column with a"
                " default",
                column=f.name,
                condition="DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION"
                if default is None
                else "GENERATED_COLUMN_WITH_DEFAULT_VALUE",
            )
        if default is not None:
            expression = parse_default(f, default, now)
            if expression is not None:
                expression.evaluate(pa.table({"row": [0]}))
    conflicts = identities & set(metadata.partition_columns)
    if conflicts:
        raise InvalidArgumentError(
            f"a table cannot be partitioned by its identity column {', '.join(sorted(conflicts))}",
            condition="DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED",
        )


def clustering_of(table: TableDescription, metadata: Metadata, base: Snapshot | None) -> dict[str, str | None]:
    """The metadata domain of the clustering columns; ``None`` removes that of a replaced table."""
    if table.cluster_by:
        return {DOMAIN: chosen_clustering(metadata, table.cluster_by)}
    if base is not None and metadata.partition_columns and clustering_columns(base):
        raise InvalidArgumentError(
            "a partitioned table cannot replace a clustered one",
            help="end clustering first, with ALTER TABLE ... CLUSTER BY NONE, or leave PARTITIONED BY out",
            file=base.uri,
            condition="DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE",
        )
    return {DOMAIN: None} if base is not None and DOMAIN in base.state.domains else {}
