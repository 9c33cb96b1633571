"""First writes: create, append, overwrite, error-if-exists and ignore.

A write travels in three steps, which may run in three places: :func:`plan_write` on the driver, ``write_files``
wherever the rows are, :func:`finish_write` on the driver again.  Only the last one commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.actions import Metadata
from trilake.delta.conflicts import ReadSet
from trilake.delta.features import check_writable, protocol_for
from trilake.delta.log import DeltaLog, Head, Snapshot
from trilake.delta.runtime import Runtime
from trilake.delta.scan import parse_table_filter
from trilake.delta.schema import StructType, check_partition_columns
from trilake.delta.skipping import matching_partitions
from trilake.delta.store_assignment import check_assignable
from trilake.delta.transaction import CommitPlan, commit, remove_action
from trilake.delta.write_files import WRITERS, FilePlan, write_files
from trilake.errors import (
    ConflictError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnknownOptionError,
    WriteFailedError,
)

Mode = Literal["error", "append", "overwrite", "ignore"]
MODES: dict[str, Mode] = {
    "error": "error",
    "errorifexists": "error",
    "default": "error",
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
}
#: Properties of the ``delta.`` namespace that a write may set, each kept by every write this library does.
PROPERTIES = {
    "delta.appendOnly",
    "delta.checkpointInterval",
    "delta.dataSkippingNumIndexedCols",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.logRetentionDuration",
    "delta.randomizeFilePrefixes",
    "delta.targetFileSize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
}


@dataclass(frozen=True)
class WriteRequest:
    """What the caller asks for; see :func:`trilake.write`."""

    mode: Mode
    schema: StructType
    partition_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] | None = None
    replace_where: str | None = None
    partition_overwrite: Literal["static", "dynamic"] = "static"
    user_metadata: str | None = None
    operation: str = "WRITE"
    #: Format of the data files; ``None`` for the table's own, and Parquet for a new table.
    data_format: str | None = None


@dataclass(frozen=True)
class WritePlan:
    """A write ready to run: ``files`` goes to whoever holds the rows.

    ``base`` is the version it stands on, ``None`` for a new table, with its files where the write replaces some;
    ``nothing`` says that there is nothing to do (``mode="ignore"`` on a table that exists).
    """

    request: WriteRequest
    files: FilePlan
    metadata: Metadata
    base: Head | None
    nothing: bool = False


@dataclass(frozen=True)
class WriteResult:
    """What a write did.

    ``version`` is the one it committed, or the one it left as it was; ``None`` for formats without versions.
    """

    version: int | None
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    bytes_added: int = 0


def parse_mode(mode: str) -> Mode:
    """A save mode by its name in trilake or Spark.  Raises ``InvalidArgumentError``."""
    found = MODES.get(mode.lower())
    if found is None:
        raise InvalidArgumentError(
            f"mode {mode!r} is unknown", help=f"modes are {', '.join(sorted(set(MODES.values())))}"
        )
    return found


def plan_write(log: DeltaLog, request: WriteRequest, runtime: Runtime | None = None) -> WritePlan:
    """Look at the table, if there is one, and decide how its files are to be written.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``UnsupportedProtocolError`` or ``InvalidArgumentError``.
    """
    runtime = runtime or Runtime()
    try:
        base: Head | None = _read_base(log, request)
    except TableNotFoundError:
        base = None
    if base is None:
        return _plan_create(log, request, runtime)
    if request.mode == "error":
        raise TableExistsError("a Delta table is there already", file=log.store.uri, version=base.version)
    metadata = base.metadata
    provider = metadata.provider.lower()
    plan = FilePlan(
        base.schema, metadata.partition_columns, runtime.new_id(), metadata.configuration, provider=provider
    )
    if request.mode == "ignore":
        return WritePlan(request, plan, metadata, base, nothing=True)
    check_writable(base.protocol, metadata, uri=log.store.uri, version=base.version)
    _check_written(provider, log.store.uri)
    if request.data_format is not None and request.data_format.lower() != provider:
        raise InvalidArgumentError(
            f"the table's files are {provider}, the write says {request.data_format!r}",
            help="leave data_format out: it is set when a table is created",
            file=log.store.uri,
        )
    if request.mode == "overwrite" and base.property("delta.appendOnly", "false").lower() == "true":
        raise InvalidArgumentError(
            "the table is append-only (delta.appendOnly=true), so no row of it may be removed",
            help='use mode="append"',
            file=log.store.uri,
        )
    _check_same(request, metadata, log.store.uri)
    check_assignable(request.schema, base.schema, uri=log.store.uri)
    return WritePlan(request, plan, metadata, base)


def _check_written(provider: str, uri: str) -> None:
    """Raise ``InvalidArgumentError`` where no files of this format are written."""
    known = {"parquet", *WRITERS}
    if provider not in known:
        raise InvalidArgumentError(
            f"the table's files are {provider!r}, and no such files are written",
            help=f"written are {', '.join(sorted(known))}",
            file=uri,
        )


def _read_base(log: DeltaLog, request: WriteRequest, version: int | None = None) -> Head:
    """The version a write stands on; only a write that replaces files needs to know them."""
    return log.snapshot(version) if request.mode == "overwrite" else log.head(version)


def _plan_create(log: DeltaLog, request: WriteRequest, runtime: Runtime) -> WritePlan:
    if request.replace_where is not None:
        raise TableNotFoundError("replace_where needs a table, and there is none", file=log.store.uri)
    if not request.schema.fields:
        raise SchemaMismatchError("a table needs at least one column", file=log.store.uri)
    void = [f.name for f in request.schema.fields if str(f.type) == "void"]
    if len(void) == len(request.schema.fields):
        raise SchemaMismatchError("no column has a type", help="cast the columns before writing", file=log.store.uri)
    properties = _checked_properties(request.properties)
    partition = check_partition_columns(request.schema, request.partition_by or ())
    provider = (request.data_format or "parquet").lower()
    _check_written(provider, log.store.uri)
    metadata = Metadata(
        id=runtime.new_id(),
        schema_string=request.schema.json(),
        partition_columns=partition,
        configuration=properties,
        provider=provider,
        created_time=runtime.clock_ms(),
    )
    files = FilePlan(request.schema, partition, runtime.new_id(), properties, provider=provider)
    return WritePlan(request, files, metadata, None)


def _checked_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    out = {}
    for key, value in (properties or {}).items():
        if key.lower().startswith("delta."):
            match = next((p for p in PROPERTIES if p.lower() == key.lower()), None)
            if match is None:
                raise UnknownOptionError(
                    f"table property {key!r} is unknown or cannot be set on write",
                    help=f"properties of the delta namespace are {', '.join(sorted(PROPERTIES))}",
                )
            key = match
        out[key] = str(value)
    return out


def _check_same(request: WriteRequest, metadata: Metadata, uri: str) -> None:
    if request.partition_by is not None:
        wanted = [c.lower() for c in request.partition_by]
        if wanted != [c.lower() for c in metadata.partition_columns]:
            raise SchemaMismatchError(
                f"the table is partitioned by {list(metadata.partition_columns)},"
                f" the write by {list(request.partition_by)}",
                help="leave partition_by out, or name the table's own partition columns",
                file=uri,
            )
    for key, value in _checked_properties(request.properties).items():
        if metadata.configuration.get(key) != value:
            raise InvalidArgumentError(
                f"the table has {key}={metadata.configuration.get(key)!r}, the write says {value!r}",
                help="properties are set when a table is created; leave them out of later writes",
                file=uri,
            )


def resume_write(
    log: DeltaLog, request: WriteRequest, files: FilePlan, metadata: Metadata, base: int | None
) -> WritePlan:
    """A plan again, from the parts of it that travelled with a job: the snapshot it stood on is read anew."""
    return WritePlan(request, files, metadata, None if base is None else _read_base(log, request, base))


def finish_write(
    log: DeltaLog, plan: WritePlan, adds: Sequence[Mapping[str, Any]], runtime: Runtime | None = None
) -> WriteResult:
    """Commit the files of a write.

    Raises as :func:`trilake.delta.transaction.commit` does.  Where it is certain that nothing was committed, the files
    are deleted at once: nobody else knows their names.
    """
    if plan.nothing:
        assert plan.base is not None
        return WriteResult(plan.base.version)
    try:
        return _commit_files(log, plan, adds, runtime or Runtime())
    except (InvalidArgumentError, SchemaMismatchError, ConflictError, TableExistsError):
        log.store.delete([unquote(str(a["path"])) for a in adds])
        raise


def _commit_files(log: DeltaLog, plan: WritePlan, adds: Sequence[Mapping[str, Any]], runtime: Runtime) -> WriteResult:
    request, now = plan.request, runtime.clock_ms()
    removed, read = _removed_files(plan, adds)
    removes = [] if removed is None else [remove_action(a, now) for a in removed.to_pylist()]
    rows = sum(int(orjson.loads(a["stats"])["numRecords"]) for a in adds)
    size = sum(int(a["size"]) for a in adds)
    parameters: dict[str, Any] = {
        "mode": {"error": "ErrorIfExists", "ignore": "Ignore"}.get(request.mode, request.mode.title()),
        "partitionBy": list(plan.metadata.partition_columns),
    }
    if request.replace_where is not None:
        parameters["predicate"] = request.replace_where
    create = plan.base is None
    result = commit(
        log,
        plan.base,
        CommitPlan(
            operation=request.operation,
            parameters=parameters,
            file_actions=[*removes, *({"add": a} for a in adds)],
            metadata=plan.metadata if create else None,
            protocol=protocol_for(plan.metadata) if create else None,
            metrics={
                "numFiles": len(adds),
                "numOutputRows": rows,
                "numOutputBytes": size,
                "numRemovedFiles": len(removes),
            },
            user_metadata=request.user_metadata,
            read=read,
        ),
        runtime,
    )
    return WriteResult(result.version, len(adds), len(removes), rows, size)


def _removed_files(plan: WritePlan, adds: Sequence[Mapping[str, Any]]) -> tuple[pa.Table | None, ReadSet]:
    """The files that the write replaces, and what it thereby read."""
    base, request = plan.base, plan.request
    if base is None or request.mode != "overwrite":
        return None, ReadSet()
    assert isinstance(base, Snapshot)
    files = base.adds
    if request.replace_where is not None:
        keep, partitions = _replaced_partitions(plan, base, adds)
        files = files.filter(keep)
        return files, ReadSet(partitions=partitions, removed=frozenset(files["path"].to_pylist()))
    if request.partition_overwrite == "dynamic" and base.metadata.partition_columns:
        partitions = tuple({tuple(a["partitionValues"].items()): a["partitionValues"] for a in adds}.values())
        mask = pc.is_in(_partition_keys(files), _partition_keys(_adds_table(adds)).combine_chunks()) if adds else None
        files = files.filter(mask) if mask is not None else files.slice(0, 0)
        return files, ReadSet(partitions=partitions, removed=frozenset(files["path"].to_pylist()))
    return files, ReadSet(whole_table=True, removed=frozenset(files["path"].to_pylist()))


def _adds_table(adds: Sequence[Mapping[str, Any]]) -> pa.Table:
    values = pa.array([list(a["partitionValues"].items()) for a in adds], pa.map_(pa.string(), pa.string()))
    return pa.table({"partitionValues": values})


def _partition_keys(files: pa.Table) -> pa.ChunkedArray:
    """Partition values of files as one comparable text each."""
    texts = [orjson.dumps(sorted((k, v or None) for k, v in row or ())).decode() for row in _distinct_rows(files)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _distinct_rows(files: pa.Table) -> list[Any]:
    rows: list[Any] = files["partitionValues"].to_pylist()
    return rows


def _replaced_partitions(
    plan: WritePlan, base: Snapshot, adds: Sequence[Mapping[str, Any]]
) -> tuple[pa.Array, tuple[Mapping[str, str | None], ...]]:
    predicate = parse_table_filter(plan.request.replace_where, base)
    assert predicate is not None
    outside = set(predicate.columns) - set(base.metadata.partition_columns)
    if outside:
        raise InvalidArgumentError(
            f"replace_where names {', '.join(sorted(outside))}, which are no partition columns",
            help=f"the partition columns are {', '.join(base.metadata.partition_columns) or 'none'}",
            file=base.uri,
        )
    if adds:
        inside = matching_partitions(base, _adds_table(adds), predicate)
        if not pc.all(inside).as_py():
            wrong = next(a for a, ok in zip(adds, inside.to_pylist(), strict=True) if not ok)
            raise SchemaMismatchError(
                f"rows of partition {wrong['partitionValues']} violate replace_where ({plan.request.replace_where})",
                help="filter the rows before writing, or widen the predicate",
                file=base.uri,
            )
    keep = matching_partitions(base, base.adds, predicate)
    distinct: dict[str, Mapping[str, str | None]] = {}
    for values in base.adds.filter(keep)["partitionValues"].to_pylist():
        distinct.setdefault(orjson.dumps(values).decode(), dict(values))
    for a in adds:
        distinct.setdefault(orjson.dumps(list(a["partitionValues"].items())).decode(), a["partitionValues"])
    return keep, tuple(distinct.values())


def write_arrow(
    log: DeltaLog,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    request: WriteRequest,
    runtime: Runtime | None = None,
) -> WriteResult:
    """Write Arrow rows from this process: all three steps."""
    runtime = runtime or Runtime()
    plan = plan_write(log, request, runtime)
    if plan.nothing:
        return finish_write(log, plan, [], runtime)
    return finish_write(log, plan, write_files(log.store, plan.files, batches, runtime=runtime), runtime)


def files_of_job(log: DeltaLog, job_id: str) -> list[str]:
    """Data files in the table's folder that a write job made, whether a commit names them or not."""
    return [o.key for o in log.store.list() if job_id in o.key]


def job_failed(log: DeltaLog, plan: WritePlan, cause: BaseException) -> WriteFailedError:
    """The error for a write whose tasks failed, naming the files of the job that are left for vacuum."""
    left = files_of_job(log, plan.files.job_id)
    what = "nothing is left behind"
    if left:
        shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        what = f"{len(left)} files are left behind, invisible to readers: {shown}"
    return WriteFailedError(
        f"the write failed before its commit; the table is unchanged and {what}. Cause: {cause}",
        help="repeat the write; vacuum removes what was left behind" if left else "repeat the write",
        file=log.store.uri,
    )
