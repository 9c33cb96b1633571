"""Command line maintenance of Lance datasets, see :class:`trilake.table.upkeep.Upkeep`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from trilake.lance.cleanup import cleanup
from trilake.lance.commands.compaction import CompactionOptions, compact
from trilake.lance.commands.indices import list_indices
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.table import LanceTable
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.operations import Restore
from trilake.lance.versions.transaction import read_manifest
from trilake.lance.versions.versions import list_versions, read_tags
from trilake.table.table import Table
from trilake.table.upkeep import OptimizeOptions, Unneeded, Upkeep, VacuumOptions, common_facts, not_for, reject

_HOURS_KEPT = 14 * 24


class LanceUpkeep(Upkeep):
    """Maintenance of Lance datasets."""

    def facts(self, table: Table) -> dict[str, Any]:
        snapshot, rows = _snapshot(table), table.count()
        manifest = snapshot.manifest
        physical = sum(reader.physical_rows for reader in snapshot.readers)
        return {
            **common_facts(table, pa.scalar(manifest.timestamp_ns, pa.timestamp("ns", "UTC")), rows, table.files()),
            "deleted_rows": physical - rows,
            "fragments": len(manifest.fragments),
            "indices": [f"{i['name']} ({i['type']}) on {', '.join(i['fields'])}" for i in list_indices(snapshot)],
            "tags": {name: tag.version for name, tag in read_tags(snapshot.store).items()},
            "writer": None if manifest.writer_version is None else " ".join(manifest.writer_version),
        }

    def log(self, table: Table, start: int | None, end: int | None, limit: int) -> Iterator[dict[str, Any]]:
        store = _snapshot(table).store
        listing = list_versions(store)
        newest = table.version if end is None else end
        versions = sorted((v for v in listing.versions if (start or 0) <= v <= (newest or 0)), reverse=True)
        for version in versions[: limit or None]:
            key = listing.key(version)
            manifest = read_manifest(store, key, version)
            actions: list[dict[str, Any]] = [{"transaction": {"file": manifest.transaction_file or None}}]
            actions += [{"fragment": _fragment(f)} for f in manifest.fragments]
            actions += [{"index": {"name": i.name, "uuid": str(i.uuid)}} for i in manifest.indices]
            yield {"version": version, "file": key, "actions": actions}

    def optimize(self, table: Table, options: OptimizeOptions) -> dict[str, Any]:
        of_delta = {"--where": options.where, "--zorder-by": options.zorder_by, "--target-size": options.target_size}
        reject(table, {**of_delta, "--full": options.full, "--purge": options.purge, "--spark": options.on_spark})
        rows = options.target_rows
        how = CompactionOptions() if rows is None else CompactionOptions(target_rows_per_fragment=rows)
        done, metrics = compact(_snapshot(table), how)
        return {"uri": table.uri, "version": done.version, **asdict(metrics)}

    def unneeded(self, table: Table, options: VacuumOptions) -> Unneeded:
        return _cleaned(table, options, dry_run=True)

    def vacuum(self, table: Table, options: VacuumOptions) -> Unneeded:
        return _cleaned(table, options, dry_run=False)

    def restore(
        self, table: Table, version: int | None, timestamp: str | None, *, ignore_missing: bool
    ) -> dict[str, Any]:
        if ignore_missing:
            raise not_for(table, "--ignore-missing", "leave it out")
        snapshot = _snapshot(table)
        old = LanceTable(snapshot.store, version=version, timestamp=timestamp, runtime=snapshot.runtime)
        restored = old.snapshot.commit(Restore(old.version))
        return {"uri": old.uri, "version": restored.version, "restored_version": old.version}


def _snapshot(table: Table) -> Snapshot:
    assert isinstance(table, LanceTable)
    return table.snapshot


def _fragment(fragment: Fragment) -> dict[str, Any]:
    deletion = fragment.deletion_file
    return {
        "id": fragment.id,
        "rows": fragment.physical_rows,
        "files": [f.key for f in fragment.files],
        "deletion_file": None if deletion is None else deletion.key(fragment.id),
    }


def _cleaned(table: Table, options: VacuumOptions, *, dry_run: bool) -> Unneeded:
    unchecked = not options.enforce_retention
    reject(table, {"--lite": options.lite, "--no-retention-check": unchecked, "--spark": options.on_spark})
    snapshot, hours = _snapshot(table), options.retention_hours
    age = int((_HOURS_KEPT if hours is None else hours) * 3_600_000)
    plan = cleanup(snapshot.store, age, snapshot.runtime, error_if_tagged=False, dry_run=dry_run)
    gone = [*plan.files, *plan.unfinished, *plan.manifests]
    files = pa.table({"path": pa.array([m.key for m in gone], pa.string()), "size": [m.size for m in gone]})
    return Unneeded(files, files["path"].slice(0, 0))


UPKEEP = LanceUpkeep()
