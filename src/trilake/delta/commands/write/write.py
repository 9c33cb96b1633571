"""Write rows in the modes create, append, overwrite (all, some partitions, matching rows), error-if-exists and ignore.

A write has three steps, which may run in different places: :func:`plan_write` on the driver, ``write_files`` in the
processes with the rows, and :func:`finish_write`, which commits, on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from trilake.delta.commands.rows.row_changes import Runner, discard, moved_on, run_here
from trilake.delta.commands.write.create import NOT_EMPTY, TableDescription, clustering_of, described
from trilake.delta.commands.write.overwrite import (
    NOTHING,
    Matches,
    Replaced,
    replace_files,
    required_of_rows,
    settled_overwrite,
)
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.files.file_plan import FilePlan, WrittenFiles, check_provider
from trilake.delta.files.new_location import check_new_location
from trilake.delta.files.write_files import TaskWriter, write_files
from trilake.delta.log.clustering import DOMAIN, clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head, Snapshot, empty_state
from trilake.delta.metadata.write_schema import (
    check_partitioning,
    check_partitions_given,
    check_properties,
    clustered,
    new_table,
    no_place_for_rows,
)
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.properties import TableProperties, parse_properties
from trilake.delta.protocol.property_values import parse_level
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.rules.constraints import RowSession
from trilake.delta.rules.defaults import columns_of_rows
from trilake.delta.rules.identity import HIGH_WATER_MARK, shift_identity, shifts, updated_schema
from trilake.delta.rules.row_rules import RowRules
from trilake.delta.rules.schema_merge import merged_metadata, overwritten_metadata
from trilake.delta.rules.store_assignment import with_marked
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask, metadata_plan, read_schema
from trilake.errors import (
    ConflictError,
    ForeignFilesError,
    IdentityOverflowError,
    InvalidArgumentError,
    MetadataChangedError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    stating,
)
from trilake.table.results import WriteResult
from trilake.table.table import table_gone


@dataclass(frozen=True)
class WritePlan:
    """A write ready to run; ``files`` is sent to the processes with the rows.

    ``metadata`` and ``protocol`` are those of the resulting table.  ``base`` is the base version, ``None`` for a new
    table; it has its files if the write replaces some.  ``nothing``: there is nothing to do.  ``read`` is what the
    query of the rows read from the table itself.
    """

    request: WriteRequest
    files: FilePlan
    metadata: Metadata
    protocol: Protocol
    base: Head | None
    nothing: bool = False
    domains: Mapping[str, str | None] = field(default_factory=dict)
    read: ReadSet = field(default_factory=ReadSet)

    def to_travel(self) -> WritePlan:
        """The plan without the files of the base version; :func:`resume_write` reads them again."""
        if not isinstance(self.base, Snapshot):
            return self
        base, none = self.base, empty_state()
        state = replace(base.state, adds=none.adds, removes=none.removes)
        return replace(self, base=Head(base.uri, base.version, state, base.segment, base.engine.for_tasks()))


#: Partitions that a task writes concurrently, by default and for few files.
_OPEN, _MANY_OPEN = 64, 512


def plan_write(
    log: DeltaLog,
    request: WriteRequest,
    *,
    session: RowSession | None = None,
    arrow: bool = False,
    seen: Head | None = None,
) -> WritePlan:
    """Inspect the table, if it exists, and plan its new files.

    ``session`` is the session of rows from Spark; ``arrow`` means that the rows come from Arrow, which has no variants.
    ``seen`` is the table if it was read already: the rows are for that version.  Raises ``TableExistsError``,
    ``TableNotFoundError`` if the table must exist, ``SchemaMismatchError``, ``UnsupportedProtocolError`` or
    ``InvalidArgumentError``.
    """
    runtime, uri = log.engine.runtime, log.store.uri
    try:
        if request.replaces and not isinstance(seen, Snapshot):  # only such a write must read the list of files
            seen = log.snapshot(None if seen is None else seen.version)
        base: Head | None = log.head() if seen is None else seen
    except TableNotFoundError:
        if request.must_exist:
            raise table_gone(uri) from None
        base = None
    if base is None:
        protocol, metadata, domains = _created(log, request)
    else:
        if request.mode == "error":
            raise TableExistsError(
                "a Delta table already exists at this location",
                file=uri,
                version=base.version,
                condition="DELTA_PATH_EXISTS",
            )
        is_repeated = request.txn is not None and base.has_transaction(*request.txn)
        if request.mode == "ignore" or is_repeated:
            files = FilePlan.of(base.metadata, base.protocol, log.engine, runtime.new_id())
            return WritePlan(request, files, base.metadata, base.protocol, base, nothing=True)
        base.check_writable()
        request = settled_overwrite(base, request, uri)
        if arrow and request.schema_mode != "overwrite":
            request = replace(request, schema=with_marked(request.schema, base.schema))
        _check_existing(base, request, uri)
        protocol, metadata, domains = _changed(log, base, request)
    if not metadata.schema.fields:
        raise no_place_for_rows(uri)
    check_provider(log.engine, metadata.provider.lower(), metadata.schema, uri)
    with _offering_another_schema(request):
        rules = RowRules.of(
            metadata,
            request.schema,
            uri=uri,
            query=log.engine.query,
            now_ms=runtime.clock_ms(),
            session=session,
        )
        if not request.fills_absent:
            check_partitions_given(rules, metadata, uri)
    files = FilePlan.of(
        metadata,
        protocol,
        log.engine,
        runtime.new_id(),
        rules=rules,
        required=required_of_rows(request, metadata),
        open_partitions=_MANY_OPEN if request.optimizes(metadata.configuration) else _OPEN,
        **request.files_limits(metadata.provider.lower()),
    )
    return WritePlan(request, files, metadata, protocol, base, domains=domains)


#: Protocol, metadata, and the metadata domains that the write sets.
_Described = tuple[Protocol, Metadata, Mapping[str, str | None]]


def _created(log: DeltaLog, request: WriteRequest) -> _Described:
    with nullcontext() if request.description is None else stating({None: NOT_EMPTY}):
        check_new_location(log.store, now_ms=log.engine.runtime.clock_ms())
    if request.description is not None:
        protocol, metadata = described(_of_rows(request.description), None, log.engine)
        return protocol, metadata, clustering_of(request.description, metadata, None)
    properties = {**(request.default_properties or {}), **(request.properties or {})}
    protocol, metadata = new_table(
        columns_of_rows(request.schema, parse_properties(properties).features),
        partition_by=request.partition_by or (),
        properties=properties,
        provider=(request.data_format or "parquet").lower(),
        runtime=log.engine.runtime,
    )
    protocol, domains = clustered(None, protocol, metadata, request.cluster_by)
    return protocol, metadata, domains


def _changed(log: DeltaLog, base: Head, request: WriteRequest) -> _Described:
    if request.description is not None and isinstance(base, Snapshot):
        protocol, metadata = described(_of_rows(request.description, base), base, log.engine)
        return protocol, metadata, clustering_of(request.description, metadata, base)
    protocol, metadata, rows, new_id = base.protocol, base.metadata, request.schema, log.engine.runtime.new_id
    replaces_schema = request.schema_mode == "overwrite"
    if replaces_schema:
        protocol, metadata = overwritten_metadata(
            protocol, metadata, rows, partition_columns=request.partition_by, uri=base.uri, new_id=new_id
        )
    elif request.schema_mode == "merge":
        version = base.version + 1
        protocol, metadata = merged_metadata(
            protocol, metadata, rows, version=version, widening=request.widening, uri=base.uri, new_id=new_id
        )
    protocol, domains = clustered(base, protocol, metadata, request.cluster_by, replace=replaces_schema)
    return protocol, metadata, domains


def _of_rows(table: TableDescription, base: Head | None = None) -> TableDescription:
    features = {*parse_properties(table.properties).features, *((base and base.protocol.writer_features) or ())}
    return replace(table, schema=columns_of_rows(table.schema, features))


@contextmanager
def _offering_another_schema(request: WriteRequest) -> Iterator[None]:
    """Let errors about columns suggest an overwrite with ``overwriteSchema``."""
    try:
        yield
    except SchemaMismatchError as e:
        partly = request.replaces_some or request.partition_overwrite == "dynamic"
        if not request.replaces or partly or request.schema_mode == "overwrite":
            raise
        offered = (
            'or replace the columns and partitioning of the table with option("overwriteSchema", "true")'
            ' (schema_mode="overwrite" in trilake.write)'
        )
        raise type(e)(e.message, help=f"{e.help}; {offered}" if e.help else offered[3:], **e.context) from None


def _check_existing(base: Head, request: WriteRequest, uri: str) -> None:
    metadata, provider = base.metadata, base.metadata.provider.lower()
    if request.data_format is not None and request.data_format.lower() != provider:
        raise InvalidArgumentError(
            f"the table's data files have format {provider}, but data_format is {request.data_format!r}",
            help="leave data_format out: it is set when a table is created",
            file=uri,
        )
    if request.replaces:
        base.check_removable(help='use mode="append"')
    if request.schema_mode != "overwrite":
        with _offering_another_schema(request):
            check_partitioning(request.partition_by, metadata, uri)
    check_properties(request.properties, metadata, uri)


def resume_write(log: DeltaLog, plan: WritePlan) -> WritePlan:
    """Restore a plan that was sent with a job."""
    if plan.base is None or not plan.request.replaces:
        return plan
    return replace(plan, base=log.snapshot(plan.base.version))


def finish_write(
    log: DeltaLog,
    plan: WritePlan,
    written: Iterable[WrittenFiles],
    *,
    run: Runner = run_here,
    matches: Matches | None = None,
    again: bool = False,
) -> WriteResult:
    """Commit the files of a write; ``run`` runs the removal of replaced rows.

    ``matches`` are the rows of the plan's version that the write replaces, if it replaces matches.

    If certainly nothing was committed, the files are deleted at once.  If another writer has created the table, they
    are added to it in the write's mode, unless the table needs different files (``MetadataChangedError``); with
    ``again`` they stay.
    """
    if plan.nothing:
        assert plan.base is not None
        return WriteResult(plan.base.version)
    parts = list(written)
    adds = [a for part in parts for a in part.actions]
    new: list[Mapping[str, Any]] = [{"add": a} for a in adds]
    try:
        replaced, base, request = NOTHING, plan.base, plan.request
        if base is not None and request.replaces:
            assert isinstance(base, Snapshot)
            replaced = replace_files(log, base, request, plan.files, plan.metadata, adds, matches=matches, run=run)
        new += replaced.actions
        return _commit_files(log, plan, parts, adds, replaced)
    except (InvalidArgumentError, SchemaMismatchError, ConflictError, IdentityOverflowError, TableExistsError) as e:
        is_made = isinstance(e, TableExistsError) and not isinstance(e, ForeignFilesError)
        if is_made and not again and plan.request.mode != "error":
            return _finish_on_new_table(log, plan, parts, run)
        if not (is_made and again):
            discard(log.store, new, plan.files.job_id)
        raise


def _finish_on_new_table(log: DeltaLog, plan: WritePlan, parts: Sequence[WrittenFiles], run: Runner) -> WriteResult:
    committed = False
    try:
        plan = on_new_table(log, plan)
        committed = not plan.nothing  # with nothing to do, the table stays unchanged, or already has the write
    finally:
        if not committed:
            discard(log.store, [{"add": a} for part in parts for a in part.actions], plan.files.job_id)
    return finish_write(log, plan, parts, run=run)


def on_new_table(log: DeltaLog, plan: WritePlan) -> WritePlan:
    """The plan for a table that another writer has created, if the table's files would be the same.

    Raises ``MetadataChangedError`` otherwise.
    """
    current = plan_write(log, plan.request)
    if not (current.nothing or plan.files.makes_the_files_of(current.files)):
        raise MetadataChangedError(
            "another writer has just created the table with different columns, partitions or properties",
            help="repeat the write with the columns of the new table",
            file=log.store.uri,
        )
    return replace(current, files=plan.files)


def _parameters(plan: WritePlan) -> dict[str, Any]:
    request, base, metadata = plan.request, plan.base, plan.metadata
    options: dict[str, Any] = {}
    if request.replace_where is not None:
        options["predicate"] = request.replace_where
    if request.replace_matches is not None:
        options.update(request.replace_matches.parameters)
    if request.partition_overwrite == "dynamic" and request.replaces:
        options["isDynamicPartitionOverwrite"] = True
    if request.schema_mode is not None:
        options["canOverwriteSchema" if request.schema_mode == "overwrite" else "canMergeSchema"] = True
    if request.managed is None:
        return {
            "mode": {"error": "ErrorIfExists", "ignore": "Ignore"}.get(request.mode, request.mode.title()),
            "partitionBy": list(request.partition_by or ()),  # the partitioning of the request, not of the table
            **options,
        }
    cluster_by = () if base is None or DOMAIN in plan.domains else map(format_path, clustering_columns(base))
    return {
        "isManaged": "true" if request.managed else "false",
        "description": metadata.description,
        "partitionBy": list(metadata.partition_columns),
        "clusterBy": list(request.cluster_by or cluster_by),
        "properties": dict(metadata.configuration),
        **({**options, "isV1SaveAsTableOverwrite": True} if request.save_as_table else {}),
    }


def _commit_files(
    log: DeltaLog,
    plan: WritePlan,
    parts: Sequence[WrittenFiles],
    adds: Sequence[Mapping[str, Any]],
    replaced: Replaced,
) -> WriteResult:
    request, base = plan.request, plan.base
    rows = sum(int(orjson.loads(a["stats"])["numRecords"]) for a in adds)
    size = sum(int(a["size"]) for a in adds)
    metadata = moved_on(plan.metadata, parts)
    actions: list[Mapping[str, Any]] = [*replaced.actions, *({"add": a} for a in adds)]
    if not request.data_change:
        actions = [{kind: {**fields, "dataChange": False} for kind, fields in a.items()} for a in actions]
    rebase = None
    if base is not None and not replaced.actions and plan.metadata == base.metadata:
        rebase = IdentityRebase.of(log, plan.files, plan.metadata, parts)
    level = TableProperties(plan.metadata.configuration).isolation_level()
    commit_plan = CommitPlan(
        operation=request.operation,
        parameters=_parameters(plan) if request.parameters is None else request.parameters,
        file_actions=actions,
        metadata=metadata if base is None or metadata != base.metadata else None,
        protocol=plan.protocol if base is None or plan.protocol != base.protocol else None,
        metrics={
            request.files_metric: len(adds),
            "numOutputRows": rows,
            "numOutputBytes": size,
            **replaced.metrics,
        },
        user_metadata=request.user_metadata,
        read=replace(
            replaced.read.beside(plan.read),
            isolation=level if request.isolation is None else parse_level(request.isolation),
        ),
        txns={} if request.txn is None else dict([request.txn]),
        domains=plan.domains,
        rebase=rebase,
    )
    try:
        version = commit(log, base, commit_plan)
    except (ConflictError, IdentityOverflowError, InvalidArgumentError):
        if rebase is not None:
            discard(log.store, rebase.moved, plan.files.job_id)
        raise
    return WriteResult(version, len(adds), len(replaced.read.removed), rows, size)


def write_arrow(
    log: DeltaLog,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    request: WriteRequest,
    *,
    seen: Head | None = None,
    read: ReadSet | None = None,
) -> WriteResult:
    """Write Arrow rows in this process: all three steps.

    ``seen`` is the table if it was read already, and ``read`` is what the query of the rows read from it.
    """
    plan = plan_write(log, request, seen=seen, arrow=True)
    plan = plan if read is None else replace(plan, read=read)
    if plan.nothing:
        return finish_write(log, plan, [])
    return finish_write(log, plan, [write_files(log.store, plan.files, batches, tasks=1)])


# --- Concurrent writers that generate identity values: the loser shifts its values behind the winner's ----------------
# Both start from the same high-water mark, so their values collide.  The files of the loser are not visible yet, so
# they are rewritten with other values.


@dataclass
class IdentityRebase:
    """The ``rebase`` of a :class:`~trilake.delta.commit.transaction.CommitPlan` whose files hold generated values.

    ``standing`` is the metadata on which the values were generated.
    """

    log: DeltaLog
    files: FilePlan
    standing: Metadata
    marks: Mapping[str, int]
    #: The rewritten files, which replace those of the plan.
    moved: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def of(
        cls, log: DeltaLog, files: FilePlan, standing: Metadata, parts: Sequence[WrittenFiles]
    ) -> IdentityRebase | None:
        """The rebase of a write; ``None`` if no values were generated."""
        columns = () if files.rules is None else files.rules.generated_identities
        if not columns or not any(part.actions for part in parts):
            return None
        moved = updated_schema(standing.schema, [p.marks for p in parts])
        marks = {n: int(moved.field(n).metadata[HIGH_WATER_MARK]) for n in columns}
        return cls(log, files, standing, marks)

    def __call__(self, plan: CommitPlan, newest: Metadata) -> CommitPlan:
        """The plan rebased on ``newest``; files are rewritten if their values must change."""
        by = shifts(self.standing.schema, newest.schema, self.marks)
        actions = list(plan.file_actions)
        if by:
            old = [a["add"] for a in actions if "add" in a]
            self.moved = [{"add": a} for a in self._moved(old, by)]
            actions = [a for a in actions if "add" not in a] + self.moved
            discard(self.log.store, [{"add": a} for a in old], self.files.job_id)
        self.standing = newest
        self.marks = {n: mark + by.get(n, 0) for n, mark in self.marks.items()}
        metadata = replace(newest, schema_string=updated_schema(newest.schema, [self.marks]).json())
        return replace(plan, file_actions=actions, metadata=metadata, read=replace(plan.read, metadata=newest))

    def _moved(self, adds: Sequence[Mapping[str, Any]], by: Mapping[str, int]) -> list[dict[str, Any]]:
        plan = metadata_plan(self.standing, self.log.engine, self.log.store.uri, 0)
        files = replace(self.files, schema=read_schema(self.files.schema), rules=None, required=None)
        with TaskWriter(self.log.store, files, 0) as writer:
            for add in adds:
                task = FileTask(unquote(add["path"]), add["size"], add["partitionValues"])
                for batch in read_task(self.log.store, task, plan):
                    rows = shift_identity(pa.Table.from_batches([batch]), by)
                    for moved in rows.to_batches():
                        writer.write(moved)
            return writer.close()
