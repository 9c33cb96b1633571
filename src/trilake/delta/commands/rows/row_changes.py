"""Removing rows from a table: shared by DELETE, UPDATE, MERGE and overwrite by predicate.

A command decides which live rows it removes; :mod:`~trilake.delta.commands.rows.taken_rows` creates the actions, and
:mod:`trilake.delta.commands.rows.change_commit` commits them.

Protocol: *Add CDC File*, *Row Tracking*.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commit import row_tracking
from trilake.delta.files.file_plan import FilePlan, not_written
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import FIELD_ID
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.iceberg import (
    ROW_ID_FIELD,
    ROW_VERSION_FIELD,
    compat_versions,
    writes_partition_columns,
)
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import PrimitiveType, StructField
from trilake.delta.scan.changes import CHANGE_TYPE
from trilake.delta.scan.read import RowsOfFiles, pack_size, packs
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan, read_plan, read_schema
from trilake.delta.scan.statistics import record_counts
from trilake.errors import (
    InvalidArgumentError,
)

CDF = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"

#: Runs a function over tasks, in any order and place.
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


def run_here(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """A :data:`Runner` that runs tasks in threads of this process."""
    if len(tasks) <= 1:
        yield from map(function, tasks)
        return
    with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1)) as pool:
        yield from pool.map(function, tasks)


# --- what a table requires -------------------------------------------------------------------------------------------


def uses_vectors(snapshot: Snapshot) -> bool:
    """Whether removed rows go into deletion vectors."""
    metadata = snapshot.metadata
    has_feature = "deletionVectors" in (snapshot.protocol.writer_features or ())
    # Other formats (ORC, CSV, ...) never get one, whatever the property says.
    return (
        has_feature and is_on(metadata.configuration, VECTORS) and metadata.provider.lower() in snapshot.engine.written
    )


def records_changes(snapshot: Snapshot) -> bool:
    """Whether the change data feed is on."""
    return snapshot.properties.is_on(CDF)


def check_changeable(snapshot: Snapshot, operation: str, *, removes: bool = True) -> None:
    """Raise where no command may change rows of the table: ``UnsupportedProtocolError`` where trilake cannot write it,
    ``InvalidArgumentError`` where it is append-only or in a format that trilake cannot write.

    ``removes=False`` is for a command that only adds rows.
    """
    metadata, uri = snapshot.metadata, snapshot.uri
    check_writable(snapshot.protocol, metadata, uri=uri, version=snapshot.version)
    if removes:
        check_removable(metadata, operation, uri)
    provider = metadata.provider.lower()
    if provider not in snapshot.engine.written:
        raise not_written(snapshot.engine, provider, uri)


def check_removable(metadata: Metadata, operation: str, uri: str) -> None:
    """Raise ``InvalidArgumentError`` where the table is append-only."""
    if is_on(metadata.configuration, "delta.appendOnly"):
        raise InvalidArgumentError(
            f"the table is configured to only allow appends (delta.appendOnly=true), which excludes {operation}",
            help="set delta.appendOnly=false to change or remove rows",
            file=uri,
            condition="DELTA_CANNOT_MODIFY_APPEND_ONLY",
        )


def row_columns(snapshot: Snapshot) -> tuple[StructField, ...]:
    """The columns with the id and version of moved rows, in this order; empty without row tracking."""
    conf = snapshot.metadata.configuration
    if not is_on(conf, row_tracking.ENABLED):
        return ()
    names = (conf.get(row_tracking.ID_COLUMN), conf.get(row_tracking.VERSION_COLUMN))
    return tuple(StructField(n, PrimitiveType("long")) for n in names if n)


def whole_rows(snapshot: Snapshot) -> ReadPlan:
    """The plan to read all columns of rows that are rewritten, followed by :func:`row_columns`."""
    plan = read_plan(snapshot, None, None)
    return replace(plan, fields=(*plan.fields, *row_columns(snapshot)))


def rewrite_plan(snapshot: Snapshot, job_id: str) -> FilePlan:
    """The plan to write rows unchanged, followed by :func:`row_columns`."""
    plan = changed_rows_plan(snapshot, snapshot.metadata, job_id)
    return replace(plan, schema=read_schema(plan.schema))  # a file may lack a column that must not be null


def changed_rows_plan(snapshot: Snapshot, metadata: Metadata, job_id: str) -> FilePlan:
    """The plan to write changed rows under ``metadata``: like :func:`rewrite_plan`, for rows that have all columns."""
    schema = metadata.schema
    return FilePlan(
        schema,
        tuple(schema.field(c).name for c in metadata.partition_columns),
        job_id,
        snapshot.engine.for_tasks(),
        metadata.configuration,
        provider=metadata.provider.lower(),
        extra=_extra_columns(snapshot),
        materialized=writes_partition_columns(snapshot.protocol, metadata.configuration),
    )


def _extra_columns(snapshot: Snapshot) -> tuple[pa.Field, ...]:
    """The columns of :func:`row_columns` in files, with Iceberg's ids where needed."""
    ids = (ROW_ID_FIELD, ROW_VERSION_FIELD)
    with_ids = bool(compat_versions(snapshot.metadata.configuration))
    return tuple(
        pa.field(f.name, pa.int64(), metadata={FIELD_ID: str(i)} if with_ids else None)
        for f, i in zip(row_columns(snapshot), ids, strict=False)
    )


def change_file_plan(files: FilePlan) -> FilePlan:
    """The plan to write change files of rows that ``files`` writes; ``_change_type`` is last."""
    return replace(
        files,
        schema=read_schema(files.schema),
        action="cdc",
        materialized=False,
        extra=(pa.field(CHANGE_TYPE, pa.string()),),
        rules=None,
        required=None,
    )


def with_change_type(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Append the change type to rows."""
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows))


# --- files to read ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TouchedFile:
    """A file that a command reads: ``number`` is its position in ``snapshot.adds``.

    ``base_row_id`` and ``commit_version`` are those of its rows that were never moved.
    """

    number: int
    file: FileTask
    base_row_id: int | None = None
    commit_version: int | None = None


def touched_files(snapshot: Snapshot, numbers: Sequence[int] | np.ndarray[Any, Any]) -> list[TouchedFile]:
    """The files at these positions of ``snapshot.adds``."""
    chosen = np.asarray(numbers, np.int64)
    files = snapshot.adds.take(pa.array(chosen))
    scan = plan_scan(replace(snapshot, state=replace(snapshot.state, adds=files)))
    ids, versions = files["baseRowId"].to_pylist(), files["defaultRowCommitVersion"].to_pylist()
    return [
        TouchedFile(int(n), file, row_id, version)
        for n, file, row_id, version in zip(chosen, scan.tasks(), ids, versions, strict=True)
    ]


def live_rows(adds: pa.Table) -> pa.ChunkedArray:
    """The number of undeleted rows of each file; null where the statistics do not state it."""
    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    return pc.subtract(record_counts(adds), deleted)


def with_row_ids(some: RowsOfFiles, sources: Sequence[TouchedFile], plan: ReadPlan, files: FilePlan) -> pa.RecordBatch:
    """The columns of ``plan.output``, followed by id and version of each row, with row tracking.

    ``some`` are rows of the files of ``sources``, read with the plan of :func:`whole_rows`; ``files`` is that of
    :func:`rewrite_plan`.
    """
    rows = some.rows.select(list(plan.output))
    if not files.extra:
        return rows
    at = pa.array(some.files)
    bases = pa.array([s.base_row_id for s in sources], pa.int64()).take(at)
    fresh = {
        row_tracking.ID_COLUMN: pc.add(bases, pa.array(some.positions)),
        row_tracking.VERSION_COLUMN: pa.array([s.commit_version for s in sources], pa.int64()).take(at),
    }
    for f, key in zip(files.extra, _row_keys(files.configuration), strict=True):
        rows = rows.append_column(f.name, pc.coalesce(some.rows.column(f.name), fresh[key]))
    return rows


def in_packs(files: Sequence[TouchedFile]) -> list[Sequence[TouchedFile]]:
    """Assign files to tasks: small ones share one, for a few tasks per core."""
    return list(packs(files, lambda f: f.file.size, pack_size(len(files), os.cpu_count() or 1)))


def _row_keys(configuration: Mapping[str, str]) -> list[str]:
    return [k for k in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN) if configuration.get(k)]
