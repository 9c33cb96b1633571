"""Checks of Iceberg metadata, if the table's properties enable it: it belongs to the version and names its files."""

from __future__ import annotations

from collections.abc import Generator

from trilake.common.extras import load
from trilake.delta.iceberg.newest import VERSION, Newest, metadata_key, metadata_location, newest_metadata
from trilake.delta.protocol.iceberg import is_uniform
from trilake.delta.scan.statistics import record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.errors import MissingDependencyError, TrilakeError
from trilake.table.findings import Finding, NotCheckedError

_SYNC = "update it with trilake.sync_iceberg; the log messages of trilake say why a commit failed to update it"
_REBUILD = "rewrite it from the log (trilake.sync_iceberg with rebuild=True)"


def current(table: DeltaContext) -> Generator[Finding, None, int]:
    """The newest Iceberg metadata belongs to this table, and to its version or a later one."""
    metadata = table.snapshot.metadata
    if not is_uniform(metadata.configuration):
        return 0
    newest = newest_metadata(table.store)
    message, help = "", _SYNC
    if not newest.number:
        message = "the table has no Iceberg metadata, although its properties enable it"
    elif not newest.content:
        message, help = "the newest Iceberg metadata is not a JSON object", _REBUILD
    elif not newest.is_of(metadata.id, metadata_location(table.store)):
        message = f"the newest Iceberg metadata belongs to another table, or to {newest.content.get('location')}"
    elif newest.version < table.version:
        converted = f"of version {newest.version}" if newest.version >= 0 else "of no version of the table"
        message = f"the newest Iceberg metadata is {converted}, but the table has version {table.version}"
    if message:
        file = metadata_key(newest.number) if newest.number else None
        yield table.finding("delta.iceberg-behind", message, severity="warning", help=help, file=file)
    return 1


def same_files(table: DeltaContext) -> Generator[Finding, None, int]:
    """The Iceberg snapshot of the version has the version's files, with the same numbers of rows."""
    metadata, location = table.snapshot.metadata, metadata_location(table.store)
    if not is_uniform(metadata.configuration):
        return 0
    newest = newest_metadata(table.store)
    path = _manifest_list(newest, table.version)
    if path is None or not newest.is_of(metadata.id, location):
        raise NotCheckedError(f"there is no Iceberg snapshot of version {table.version} in {table.store.uri}")
    try:
        manifests = load("trilake.delta.iceberg.manifests", "Iceberg manifests")
        data_files = load("trilake.delta.iceberg.data_files", "Iceberg manifests")
    except MissingDependencyError as e:
        raise NotCheckedError(e.message) from e
    try:
        there = dict(manifests.live_files(table.store, location, path))
    except (TrilakeError, manifests.DamagedFileError) as e:
        yield _differs(table, f"the manifests of the version's Iceberg snapshot cannot be read: {e}", path)
        return 1
    paths = (data_files.absolute_path(p, location) for p in table.adds["path"].to_pylist())
    for file, rows in zip(paths, record_counts(table.adds, table.engine.query).to_pylist(), strict=True):
        iceberg_file = there.pop(file, None)
        if iceberg_file is None:
            yield _differs(table, "the Iceberg snapshot lacks the file", file)
        elif iceberg_file != rows:
            yield _differs(
                table, f"the Iceberg snapshot says that the file has {iceberg_file} rows, but the log says {rows}", file
            )
    for file in there:
        yield _differs(table, "the Iceberg snapshot has a file that is not in the version", file)
    return table.file_count


def _differs(table: DeltaContext, message: str, file: str) -> Finding:
    return table.finding("delta.iceberg-differs", message, help=_REBUILD, file=file)


def _manifest_list(newest: Newest, version: int) -> str | None:
    snapshots = newest.content.get("snapshots")
    for snapshot in reversed(snapshots if isinstance(snapshots, list) else []):
        if isinstance(snapshot, dict) and (snapshot.get("summary") or {}).get(VERSION) == str(version):
            return str(snapshot.get("manifest-list"))
    return None
