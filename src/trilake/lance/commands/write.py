"""Create, append to or overwrite a dataset, as one commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    TrilakeError,
    UnknownOutcomeError,
)
from trilake.lance.commands.fragment_writer import (
    Reporter,
    Target,
    WriteOptions,
    discard,
    discarded_on_failure,
    write_failed,
    write_fragments,
)
from trilake.lance.file.errors import CommitConflictError, OptionError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import DEFAULT, StorageVersion
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.versions import Scheme, check_new_location, exists_already, list_versions
from trilake.storage.base import Store, WriteGroup

Mode = Literal["create", "append", "overwrite"]


@dataclass(frozen=True)
class WritePlan:
    """A write in progress: its target and base version.

    ``base`` is the version to append to or replace, ``None`` for a new dataset; ``base_key`` is the key of its
    manifest.
    """

    mode: Mode
    base: Manifest | None
    options: WriteOptions
    runtime: Runtime
    base_key: str | None = None

    @property
    def version(self) -> StorageVersion:
        if self.options.storage_version is not None and (self.base is None or self.mode != "append"):
            return self.options.storage_version
        return DEFAULT if self.base is None else self.base.storage_version

    @property
    def scheme(self) -> Scheme:
        named = self.options.v2_manifest_names
        return "v2" if (not self.version.is_legacy if named is None else named) else "v1"

    def target(self, schema: pa.Schema) -> Target:
        """Return the target for rows of a schema.  Raises ``SchemaMismatchError`` for a schema without columns."""
        if self.mode == "append" and self.base is not None:
            _check_thresholds(self.base.schema, schema)
            return Target.of(self.base.schema, self.version, schema.names, nulls=self.options.nulls)
        if not schema.names:
            raise SchemaMismatchError("a dataset needs at least one column")
        return Target.new(schema, self.version, nulls=self.options.nulls)


def _check_thresholds(stored: LanceSchema, rows: pa.Schema) -> None:
    """Raise ``OptionError`` if blob thresholds differ from those of the dataset."""
    for one in rows:
        field = stored.find(one.name)
        if field is None or not field.is_blob:
            continue
        for key, value in (one.metadata or {}).items():
            if key.endswith(b"-threshold") and field.metadata.get(key) != value:
                raise OptionError(
                    f"Cannot append data with blob threshold metadata {key.decode()}={value.decode()}: the dataset has "
                    f"{field.metadata.get(key, b'none').decode()}",
                    help="leave the threshold out of blob_field",
                    column=one.name,
                )


def plan_write(store: Store, mode: Mode, runtime: Runtime, options: WriteOptions | None = None) -> WritePlan:
    """Prepare a write.

    An append or overwrite creates a missing dataset.  Raises ``TableExistsError`` if the dataset to create exists or
    the folder has other files, and ``UnsupportedProtocolError`` for a dataset that trilake cannot write.
    """
    if mode not in ("create", "append", "overwrite"):
        raise InvalidArgumentError(f"mode must be create, append or overwrite, got {mode!r}")
    listing = list_versions(store)
    if listing.versions and mode == "create":
        raise exists_already(store, listing)
    base, key = None, None
    if listing.versions:
        base, key = transaction.load(store, listing.latest, listing), listing.key(listing.latest)
        base.check_writable(store.uri)
    else:
        check_new_location(store, now_ms=runtime.clock_ms())
    options = with_bases_of(base, options or WriteOptions(), mode)
    return WritePlan(mode, base, options, runtime, key)


def with_bases_of(base: Manifest | None, options: WriteOptions, mode: str) -> WriteOptions:
    """Return the options with the base paths of an existing dataset.  Raises ``OptionError`` for new ones."""
    if base is None:
        return options
    if options.bases:
        raise OptionError(
            f"Cannot register new bases in {mode.capitalize()} mode: the dataset already exists",
            help="leave out initial_bases, and add base paths with add_bases",
        )
    return replace(options, bases=base.base_paths)


def commit_write(
    store: Store, plan: WritePlan, target: Target, fragments: Iterable[Fragment], group: WriteGroup | None = None
) -> Snapshot:
    """Commit the fragments of a write, after finishing the ``group`` of their files.

    An append may be rebased onto a dataset with the same columns that was created concurrently.  Raises
    ``TableExistsError``, ``ConflictError`` or ``UnknownOutcomeError``; only after the last are the files kept.
    """
    fragments = tuple(fragments)
    read_version = 0 if plan.base is None else plan.base.version
    operation: op.Operation
    if plan.mode == "append" and plan.base is not None:
        operation = op.Append(fragments)
    else:
        operation = op.Overwrite(
            fragments,
            target.schema,
            plan.options.config if plan.base is None else {},
            plan.options.bases if plan.base is None else (),
            storage_version=plan.version,
            stable_row_ids=plan.options.stable_row_ids,
        )
    begun = transaction.begin(read_version, operation, plan.runtime, plan.options.properties)
    create = plan.mode != "overwrite" and not plan.base

    def finish() -> None:
        try:
            if group is not None:
                group.finish()
        except StorageError as e:
            raise write_failed(store, e) from e

    try:
        manifest = transaction.commit(
            store,
            begun,
            plan.runtime,
            create=create,
            scheme=plan.scheme,
            known=plan.base_key,
            finish=finish,
            base=plan.base,
        )
        return Snapshot(store, manifest, plan.runtime)
    except UnknownOutcomeError:
        raise  # a version may reference the files
    except TableExistsError as e:
        with discarded_on_failure(store, fragments, plan.options.bases):
            if plan.mode == "create":
                raise
            joined = _joined(store, plan, target, fragments, e)
    except TrilakeError:
        discard(store, fragments, plan.options.bases)
        raise
    return commit_write(store, joined, target, fragments)


def _joined(
    store: Store, plan: WritePlan, target: Target, fragments: Iterable[Fragment], error: TableExistsError
) -> WritePlan:
    """Rebase an append onto the dataset that another writer has created concurrently.

    Raises ``ConflictError`` if the files do not match that dataset.
    """
    base = transaction.load(store)
    base.check_writable(store.uri)
    if base.base_paths != plan.options.bases and any(f.base_id is not None for one in fragments for f in one.files):
        raise CommitConflictError(
            "another writer created the dataset with different base paths",
            help="repeat the write without initial_bases: it then appends to that dataset",
            file=store.uri,
        ) from error
    # All files share the dictionaries of the dataset, so indices into other dictionaries would be wrong.
    if base.schema != target.schema or base.schema.dictionaries or target.schema.dictionaries:
        raise CommitConflictError(
            "another writer created the dataset with different columns or with dictionaries",
            help="repeat the write: it then appends to that dataset",
            file=store.uri,
        ) from error
    return replace(plan, base=base)


def write(
    store: Store,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    mode: Mode,
    runtime: Runtime,
    options: WriteOptions | None = None,
    *,
    progress: Reporter | None = None,
) -> Snapshot:
    """Write rows to the dataset at the root of ``store``, and return the new version.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``ConflictError``, ``WriteFailedError`` or
    ``UnknownOutcomeError``.  A failed write leaves nothing visible.
    """
    plan = plan_write(store, mode, runtime, options)
    target = plan.target(schema)
    # Completion is reported after the files are on disk.
    group = store.write_group() if progress is None else WriteGroup(store)
    fragments = write_fragments(store, batches, target, plan.options, runtime, progress=progress, together=group)
    try:
        return commit_write(store, plan, target, fragments, group)
    finally:
        group.abandon()
