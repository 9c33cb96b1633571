"""What an overwrite replaces: everything, the partitions of the new rows, or the rows that match a predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from trilake.delta.commands.rows.removal import remove_rows
from trilake.delta.commands.rows.row_changes import FoundRows, Runner, find_rows, write_inserts
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commit.conflicts import PartitionPredicate, ReadSet
from trilake.delta.commit.transaction import remove_action
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.scan.scan import FileTask, metadata_plan, parse_table_filter
from trilake.errors import InvalidArgumentError, MetadataChangedError
from trilake.expr import Filter, parse_filter


@dataclass(frozen=True)
class Replaced:
    """The actions that remove replaced rows, the reads that find them, and metrics."""

    actions: tuple[Mapping[str, Any], ...] = ()
    read: ReadSet = field(default_factory=ReadSet)
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Matches:
    """The rows of a version that a write replaces, and the reads that found them."""

    rows: FoundRows
    read: ReadSet


NOTHING = Replaced(metrics={"numRemovedFiles": 0})


def replace_files(
    log: DeltaLog,
    base: Snapshot,
    request: WriteRequest,
    files: FilePlan,
    metadata: Metadata,
    adds: Sequence[Mapping[str, Any]],
    *,
    matches: Matches | None,
    run: Runner,
) -> Replaced:
    """Find what the new files ``adds`` replace in ``base``: rows by predicate, ``matches``, partitions, or everything.

    Raises ``MetadataChangedError`` for a request that replaces matches, without these.
    """
    if request.replace_matches is not None and matches is None:
        raise MetadataChangedError(
            "another writer has just created the table, so this write does not know which of its rows to replace",
            help="repeat the write",
            file=log.store.uri,
        )
    where = parse_table_filter(request.replace_where, base)
    if where is not None:
        found = find_rows(log, base, where, run=run)
        read = ReadSet(predicates=(PartitionPredicate.of(base, where),), files=found.paths(base))
        matches = Matches(found, read)
    if matches is None:
        return _replace_whole_files(log, base, adds, dynamic=request.partition_overwrite == "dynamic")
    removal = remove_rows(
        log,
        base,
        matches.rows.rows,
        whole=matches.rows.whole,
        job_id=files.job_id,
        change_type="delete",
        run=run,
    )
    actions = [*removal.actions]
    if removal.change_files:
        plan = metadata_plan(metadata, base.engine, base.uri, base.version)
        new = [FileTask(unquote(a["path"]), a["size"], a["partitionValues"]) for a in adds]
        actions += write_inserts(log.store, plan, files, new)
    metrics = {"numRemovedFiles": len(removal.removed), "numCopiedRows": removal.copied}
    if removal.rows is not None:
        metrics["numDeletedRows"] = removal.rows
    return Replaced(tuple(actions), replace(matches.read, removed=removal.removed), metrics)


def _replace_whole_files(
    log: DeltaLog, base: Snapshot, adds: Sequence[Mapping[str, Any]], *, dynamic: bool
) -> Replaced:
    files, read = base.adds, ReadSet(whole_table=True)
    if dynamic and base.metadata.partition_columns:  # only the written files show which partitions count as read
        fields = partition_fields(base.schema, base.metadata.partition_columns)
        partitions = PartitionKeys.of_actions((a["partitionValues"] for a in adds), fields).distinct()
        same = PartitionKeys.of(files["partitionValues"], fields).among(partitions)
        files, read = files.filter(pa.array(same)), ReadSet(partitions=(partitions,))
    now, removed = log.engine.runtime.clock_ms(), frozenset(files["path"].to_pylist())
    removes = tuple(remove_action(a, now) for a in files.to_pylist())
    return Replaced(removes, replace(read, removed=removed), {"numRemovedFiles": len(removes)})


def check_dynamic_alone(request: WriteRequest, uri: str | None = None) -> None:
    """Raise ``InvalidArgumentError`` if a dynamic overwrite is combined with another choice of what to replace."""
    if request.partition_overwrite != "dynamic":
        return
    if request.replace_where is not None:
        raise InvalidArgumentError(
            "replace_where and partition_overwrite='dynamic' cannot both be given",
            help="leave one of them out",
            file=uri,
            condition="DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    if request.schema_mode == "overwrite":
        raise InvalidArgumentError(
            "schema_mode='overwrite' replaces all rows, but partition_overwrite='dynamic' keeps some",
            help="use schema_mode='merge' to add columns",
            file=uri,
            condition="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )


def settled_overwrite(base: Head, request: WriteRequest, uri: str) -> WriteRequest:
    """The request; with a dynamic overwrite if that is requested or the default, and the table is partitioned.

    Raises ``InvalidArgumentError`` if the request also chooses in another way what to replace.
    """
    if not base.metadata.partition_columns:
        return replace(request, partition_overwrite="static") if request.partition_overwrite == "dynamic" else request
    check_dynamic_alone(request, uri)
    if not request.prefer_dynamic or not request.replaces or request.replaces_some:
        return request
    if request.schema_mode == "overwrite":
        raise InvalidArgumentError(
            "overwriteSchema replaces all rows, but spark.sql.sources.partitionOverwriteMode=dynamic of this"
            " session keeps some partitions",
            help='add option("partitionOverwriteMode", "static") to the write',
            file=uri,
            condition="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    return replace(request, partition_overwrite="dynamic")


def required_of_rows(request: WriteRequest, metadata: Metadata) -> Filter | None:
    """The condition that every new row must satisfy; ``None`` if there is none.

    A part of ``replace_where`` without columns, such as ``false``, does not restrict rows.  Raises
    ``InvalidArgumentError`` for data columns where only partition columns are allowed, as with ``dataChange=false``.
    """
    where = parse_filter(request.replace_where, filter_schema(metadata.schema))
    of_data = [] if where is None else sorted(where.columns - set(metadata.partition_columns))
    if of_data and not request.replace_where_data:
        raise InvalidArgumentError(
            f"replaceWhere uses {', '.join(of_data)}, but this session only allows partition columns"
            f" ({', '.join(metadata.partition_columns) or 'none'})",
            help="unset spark.databricks.delta.replaceWhere.dataColumns.enabled, or use partition columns only",
            condition="DELTA_NON_PARTITION_COLUMN_REFERENCE",
        )
    if of_data and not request.data_change:
        raise InvalidArgumentError(
            f"dataChange=false moves whole files, but replaceWhere selects rows by {', '.join(of_data)}",
            help="leave out dataChange, or use partition columns only",
            condition="DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET",
        )
    if where is None or not request.replace_where_checked:
        return None
    of_rows = tuple(c for c in where.conjuncts if c.predicate.paths())
    return replace(where, conjuncts=of_rows) if of_rows else None
