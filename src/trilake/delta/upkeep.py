"""Delta tables for the command line; see :class:`trilake.table.upkeep.Upkeep`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from trilake.delta.commands.maintenance.vacuum import VacuumResult, vacuum
from trilake.delta.commands.optimize.metrics import as_row
from trilake.delta.commands.optimize.optimize import OptimizeRequest, OptimizeResult, optimize
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.protocol.actions import parse_lines
from trilake.delta.scan.changes import read_change_task, scan_changes
from trilake.delta.scan.scan import stated_rows, vector_count
from trilake.delta.table import ArrowDeltaTable
from trilake.table.table import Table
from trilake.table.upkeep import OptimizeOptions, Unneeded, Upkeep, VacuumOptions, common_facts, not_for, reject


class DeltaUpkeep(Upkeep):
    """Maintenance of Delta tables."""

    def facts(self, table: Table) -> dict[str, Any]:
        table = _delta(table)
        detail, files, metadata = table.detail(), table.files(), table.metadata
        renamed = ["deletionVector" if n == "deletion_vector" else n for n in files.column_names]
        rows = stated_rows(files["num_records"], files["deletion_vector"])
        row = detail.drop_columns(["lastModified", "createdAt"]).to_pylist()[0]
        return {
            **common_facts(table, detail["lastModified"][0], rows, files),
            "partition_columns": row["partitionColumns"],
            "deleted_rows": vector_count(files.rename_columns(renamed)),
            "clustering_columns": row["clusteringColumns"],
            "name": row["name"],
            "description": row["description"],
            "id": row["id"],
            "created": detail["createdAt"][0],
            "data_format": metadata.provider,
            "min_reader_version": row["minReaderVersion"],
            "min_writer_version": row["minWriterVersion"],
            "features": row["tableFeatures"],
            "properties": dict(row["properties"]),
        }

    def columns(self, table: Table) -> Iterator[dict[str, Any]]:
        table = _delta(table)
        clustered = {path[0] for path in clustering_columns(table.snapshot) if len(path) == 1}
        for field in table.snapshot.schema.fields:
            partition = field.name in table.metadata.partition_columns
            yield {
                "name": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "role": "partition" if partition else "clustering" if field.name in clustered else None,
                "comment": field.metadata.get("comment"),
                "metadata": dict(field.metadata),
            }

    def log(self, table: Table, start: int | None, end: int | None, limit: int) -> Iterator[dict[str, Any]]:
        log = _delta(table).log
        commits = log.commits(start or 0, table.version if end is None else end)[::-1]
        for version, meta in commits[: limit or None]:
            yield {
                "version": version,
                "file": meta.key,
                "actions": list(parse_lines(bytes(log.store.read(meta.key)), version, meta.key)),
            }

    def changes(
        self, table: Table, start: int | str, end: int | str | None, columns: Sequence[str] | None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        log = _delta(table).log
        scan = scan_changes(log, start, end, columns=columns)
        return scan.schema, (b for task in scan.tasks for b in read_change_task(log.store, task, scan.plan))

    def optimize(self, table: Table, options: OptimizeOptions) -> dict[str, Any]:
        table = _delta(table)
        if options.target_rows is not None:
            raise not_for(table, "--target-rows", "pass --target-size, in bytes")
        if options.purge:
            others = {"--zorder-by with --purge": options.zorder_by, "--full with --purge": options.full}
            reject(table, {**others, "--spark": options.on_spark})
            return _optimized(table, table.purge(options.where, target_size=options.target_size))
        request = OptimizeRequest(
            where=options.where, zorder_by=options.zorder_by, target_size=options.target_size, full=options.full
        )
        run = {} if options.on_spark is None else {"run": options.on_spark()}
        return _optimized(table, optimize(table.log, request, **run))

    def unneeded(self, table: Table, options: VacuumOptions) -> Unneeded:
        return _vacuum(_delta(table), options, dry_run=True)

    def vacuum(self, table: Table, options: VacuumOptions) -> Unneeded:
        run = {} if options.on_spark is None else {"run": options.on_spark()}
        return _vacuum(_delta(table), options, **run)

    def restore(
        self, table: Table, version: int | None, timestamp: str | None, *, ignore_missing: bool
    ) -> dict[str, Any]:
        result = _delta(table).restore(version, timestamp, ignore_missing=ignore_missing)
        return {"uri": table.uri, **asdict(result)}


def _delta(table: Table) -> ArrowDeltaTable:
    assert isinstance(table, ArrowDeltaTable)
    return table


def _optimized(table: Table, result: OptimizeResult) -> dict[str, Any]:
    return {
        "uri": table.uri,
        "version": result.version,
        "files_removed": result.files_removed,
        "files_added": result.files_added,
        "bytes_removed": result.metrics.files_removed.total_size,
        "bytes_added": result.metrics.files_added.total_size,
        "metrics": as_row(result.metrics),
    }


def _vacuum(table: ArrowDeltaTable, options: VacuumOptions, **how: Any) -> Unneeded:
    result: VacuumResult = vacuum(
        table.log,
        cached=table.snapshot,
        retention_hours=options.retention_hours,
        lite=options.lite,
        enforce_retention=options.enforce_retention,
        **how,
    )
    return Unneeded(result.files.select(["path", "size"]), result.foreign["path"], result.version)


UPKEEP = DeltaUpkeep()
