"""``LanceTable``: the format-independent view of a Lance dataset, and writes to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa

from trilake.common.arguments import checked_methods
from trilake.common.option_values import positive
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.common.timestamps import TimestampLike, timestamp_ns
from trilake.errors import InvalidArgumentError, UnknownOptionError
from trilake.lance.commands import input_rows
from trilake.lance.commands import write as writing
from trilake.lance.commands.fragment_writer import NullPolicy, WriteOptions, write_fragments
from trilake.lance.file.errors import DatasetExistsError, DatasetVersionNotFoundError
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.scan.scan import candidate_groups
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Manifest
from trilake.lance.versions.versions import list_versions
from trilake.storage.base import Store
from trilake.table.explanation import Explanation
from trilake.table.table import FILES, FilterLike, Table

#: Write options by name.
OPTIONS = ("dataStorageVersion", "maxRowsPerFile", "maxRowsPerGroup", "maxBytesPerFile", "nulls")


@checked_methods
class LanceTable(Table):
    """A dataset at one version.

    Parameters
    ----------
    store: store at the root of the dataset.
    version: version to read, by default the newest.
    timestamp: read the version that was current at this time.
    runtime: clock and ids for commits.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``CorruptLogError`` or ``UnsupportedProtocolError``.
    """

    format = "lance"

    def __init__(
        self,
        store: Store,
        *,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        runtime: Runtime = SYSTEM_RUNTIME,
    ) -> None:
        if version is not None and timestamp is not None:
            raise InvalidArgumentError("version and timestamp cannot both be given", help="pass only one of them")
        self.uri = store.uri
        if timestamp is not None:
            version = version_at(store, timestamp)
        self.snapshot = Snapshot.open(store, runtime, version)

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def schema(self) -> pa.Schema:
        return self.snapshot.schema

    def files(self, filter: FilterLike | None = None) -> pa.Table:
        """Return one row per data file; ``num_records`` includes deleted rows, ``stats`` has row and column counts."""
        bound, store = self.snapshot.filter(filter), self.snapshot.store
        rows: list[tuple[Any, ...]] = []
        for reader in self.snapshot.readers:
            if bound is not None and not candidate_groups(reader, bound, self.snapshot.view):
                continue
            fragment = reader.fragment
            deletion = None if fragment.deletion_file is None else fragment.deletion_file.key(fragment.id)
            for entry in fragment.files:
                size = entry.size_bytes or store.head(entry.key).size
                stats = {"numRecords": reader.physical_rows, "fragment": fragment.id, "fields": list(entry.fields)}
                rows.append((entry.key, [], size, reader.physical_rows, json.dumps(stats), deletion))
        columns = [list(c) for c in zip(*rows, strict=True)] if rows else [[]] * len(FILES)
        return pa.table(columns, schema=FILES)

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows as batches, in fragment order; a few chunks are read in parallel."""
        names = None if columns is None else self.projected_schema(columns).names
        plan = self.snapshot.plan(names, filter)
        return self.snapshot.scan(plan)

    def count(self, filter: FilterLike | None = None) -> int:
        return self.snapshot.count(filter)

    def history(self, limit: int | None = None) -> pa.Table:
        """Return one row per version, newest first: ``version``, ``timestamp`` (ns), ``operation`` and ``num_rows``."""
        store = self.snapshot.store
        listing = list_versions(store)
        versions = [v for v in reversed(listing.versions) if v <= self.version][:limit]
        manifests = [m for m in transaction.read_manifests(store, listing, versions) if m is not None]
        operations = store.at_once([partial(_operation, store, m) for m in manifests])
        return pa.table(
            {
                "version": pa.array([m.version for m in manifests], pa.int64()),
                "timestamp": pa.array([m.timestamp_ns for m in manifests], pa.timestamp("ns", "UTC")),
                "operation": pa.array(operations, pa.string()),
                "num_rows": pa.array([_rows(m) for m in manifests], pa.int64()),
            }
        )

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Explain which files may match a filter, and how many of their rows are in matching row groups."""
        bound = self.snapshot.filter(filter)
        paths, needed, reasons, total, remaining = [], [], [], 0, 0
        for reader in self.snapshot.readers:
            ranges = [(0, reader.physical_rows)]
            if bound is not None:
                ranges = candidate_groups(reader, bound, self.snapshot.view)
            total += reader.physical_rows
            remaining += sum(b - a for a, b in ranges)
            for entry in reader.fragment.files:
                paths.append(entry.key)
                needed.append(bool(ranges))
                reasons.append("it may contain matching rows" if ranges else "no row group can match")
        files = pa.table(
            {
                "path": pa.array(paths, pa.string()),
                "kept": pa.array(needed, pa.bool_()),
                "reason": pa.array(reasons, pa.string()),
            }
        )
        note = f"{remaining} of {total} rows are in row groups that may match"
        return Explanation(None if bound is None else str(bound), files, (note,))


def _operation(store: Store, manifest: Manifest) -> str | None:
    stored = transaction.of_manifest(store, manifest)
    return None if stored is None else type(stored.operation).__name__


def _rows(manifest: Manifest) -> int | None:
    """Return the number of live rows, or ``None`` if the manifest does not state it."""
    total = 0
    for f in manifest.fragments:
        deleted = 0 if f.deletion_file is None else f.deletion_file.num_deleted_rows
        if not f.physical_rows or (f.deletion_file is not None and not deleted):
            return None
        total += f.physical_rows - deleted
    return total


# --- time travel -----------------------------------------------------------------------------------------------------


def version_at(store: Store, timestamp: TimestampLike) -> int:
    """Return the version that was current at a timestamp.  Raises ``VersionNotFoundError``."""
    limit = timestamp_ns(timestamp)
    listing = list_versions(store)
    for version in reversed(listing.versions):
        if transaction.read_manifest(store, listing.key(version), version).timestamp_ns <= limit:
            return version
    raise DatasetVersionNotFoundError(f"all versions are newer than {timestamp}", file=store.uri)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the write options ``OPTIONS``, given as strings; see :class:`WriteOptions`.

    Names are case-insensitive and may have underscores (``data_storage_version``).  Raises ``UnknownOptionError`` and
    ``InvalidArgumentError``.

    >>> write_options({"maxRowsPerFile": "4096", "dataStorageVersion": "2.1"}).max_rows_per_file
    4096
    """
    option_by_key = {name.lower(): name for name in OPTIONS}
    named = {name: option_by_key.get(name.lower().replace("_", "")) for name in options}
    unknown = sorted(name for name, option in named.items() if option is None)
    if unknown:
        raise UnknownOptionError(
            f"{', '.join(map(repr, unknown))} is not a Lance write option", help=f"options are {', '.join(OPTIONS)}"
        )
    by_name = {named[name]: value for name, value in options.items()}
    version = by_name.get("dataStorageVersion")

    def number(name: str, default: int) -> int:
        return positive(name, by_name.get(name)) or default

    defaults = WriteOptions()
    return WriteOptions(
        number("maxRowsPerFile", defaults.max_rows_per_file),
        number("maxRowsPerGroup", defaults.max_rows_per_group),
        number("maxBytesPerFile", defaults.max_bytes_per_file),
        cast(NullPolicy, by_name.get("nulls", defaults.nulls)),  # WriteOptions checks it
        None if version is None else StorageVersion.parse(version),
    )


def write_table(
    store: Store,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    runtime: Runtime,
    mode: str = "error",
    options: WriteOptions | None = None,
) -> tuple[Snapshot | None, int, int]:
    """Write rows as one version; ``mode`` is ``error``, ``ignore``, ``append`` or ``overwrite``.

    Returns the version (``None`` if ``ignore`` found an existing dataset), and the numbers of new fragments and rows.
    """
    modes: dict[str, writing.Mode] = {"append": "append", "overwrite": "overwrite"}
    modes |= {"error": "create", "ignore": "create"}
    if mode not in modes:
        raise InvalidArgumentError(f"mode must be append, error, ignore or overwrite, got {mode!r}")
    if mode == "ignore" and list_versions(store).versions:
        return None, 0, 0
    schema, batches = input_rows.plain(schema, batches)
    try:
        plan = writing.plan_write(store, modes[mode], runtime, options)
        target = plan.target(schema)
        fragments = write_fragments(store, batches, target, plan.options, runtime)
        done = writing.commit_write(store, plan, target, fragments)
    except DatasetExistsError:  # created concurrently
        if mode != "ignore":
            raise
        return None, 0, 0
    return done, len(fragments), sum(f.physical_rows for f in fragments)
