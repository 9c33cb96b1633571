"""Write: rows that begin a dataset, are added to it, or take its place, as one commit."""

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
    Progress,
    Target,
    WriteOptions,
    discard,
    discarded_on_failure,
    write_failed,
    write_fragments,
)
from trilake.lance.file.errors import CommitConflictError, DatasetExistsError
from trilake.lance.file.storage_version import DEFAULT, StorageVersion
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.versions import Scheme, check_place, list_versions
from trilake.storage.base import Store, WriteGroup

Mode = Literal["create", "append", "overwrite"]


@dataclass(frozen=True)
class WritePlan:
    """A write that was begun: what rows become, and what they are committed on.

    ``base`` is the version that is appended to or replaced, ``None`` where the write begins a dataset, and ``base_key``
    where its manifest is; ``runtime`` is what the write takes from the world.
    """

    mode: Mode
    base: Manifest | None
    options: WriteOptions
    runtime: Runtime
    base_key: str | None = None

    @property
    def version(self) -> StorageVersion:
        """The version of the files."""
        if self.options.storage_version is not None and (self.base is None or self.mode != "append"):
            return self.options.storage_version
        return DEFAULT if self.base is None else self.base.storage_version

    @property
    def scheme(self) -> Scheme:
        """How manifests of a new dataset are named."""
        named = self.options.v2_manifest_names
        return "v2" if (not self.version.is_first if named is None else named) else "v1"

    def target(self, schema: pa.Schema) -> Target:
        """The target of the rows of a schema.  Raises ``SchemaMismatchError`` where a dataset would have no columns."""
        if self.mode == "append" and self.base is not None:
            names = schema.names if self.options.partial else self.base.schema.names
            return Target.of(self.base.schema, self.version, names, nulls=self.options.nulls)
        if not schema.names:
            raise SchemaMismatchError("a dataset needs at least one column")
        return Target.new(schema, self.version, nulls=self.options.nulls)


def plan_write(store: Store, mode: Mode, runtime: Runtime, options: WriteOptions | None = None) -> WritePlan:
    """Look at the dataset that is written to.

    An append, or an overwrite, of a dataset that is not there begins it.

    Raises ``TableExistsError`` where a dataset to be created is there, or the files of others,
    ``UnsupportedProtocolError`` for one that must not be written to.
    """
    if mode not in ("create", "append", "overwrite"):
        raise InvalidArgumentError(f"mode is {mode!r}", help="it is create, append or overwrite")
    listing = list_versions(store)
    if listing.versions and mode == "create":
        raise DatasetExistsError(
            "a Lance dataset already exists there",
            help='pass mode="append" or mode="overwrite" to write into it',
            file=store.uri,
            version=listing.latest,
        )
    base, key = None, None
    if not listing.versions:
        check_place(store, now_ms=runtime.clock_ms())
    if listing.versions:
        base, key = transaction.load(store, listing.latest, listing), listing.key(listing.latest)
        base.check_writable(store.uri)
    options = options or WriteOptions()
    return WritePlan(mode, base, options, runtime, key)


def commit_write(
    store: Store, plan: WritePlan, target: Target, fragments: Iterable[Fragment], group: WriteGroup | None = None
) -> Snapshot:
    """Make the fragments of a write a version of the dataset; the ``group`` of their files is finished before.

    An append goes on with a dataset of the same columns that another writer made since it was begun.

    Raises ``TableExistsError``, ``ConflictError`` or ``UnknownOutcomeError``; with the last one only, the files stay.
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
        raise  # the files may be those of a version
    except TableExistsError as e:
        with discarded_on_failure(store, fragments):
            if plan.mode == "create":
                raise
            joined = _joined(store, plan, target, e)
    except TrilakeError:
        discard(store, fragments)
        raise
    return commit_write(store, joined, target, fragments)


def _joined(store: Store, plan: WritePlan, target: Target, error: TableExistsError) -> WritePlan:
    """An append that was to begin a dataset, on the one that another writer made meanwhile.

    Raises ``ConflictError`` where its files are not what those of that dataset would be.
    """
    base = transaction.load(store)
    base.check_writable(store.uri)
    # A dictionary is one for all files of a dataset: values of one cannot be told by another.
    if base.schema != target.schema or base.schema.dictionaries or target.schema.dictionaries:
        raise CommitConflictError(
            "another writer created the dataset meanwhile, with other columns or with dictionaries",
            help="write again: the rows are then written as the dataset has them",
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
    progress: Progress | None = None,
) -> Snapshot:
    """Write rows into the dataset at the root of ``store``, and return the version that has them.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``ConflictError``, ``WriteFailedError`` or
    ``UnknownOutcomeError``.  Of a write that fails nothing is ever visible.
    """
    plan = plan_write(store, mode, runtime, options)
    target = plan.target(schema)
    # Who wants to know when a fragment is complete is told when it is on disk.
    group = store.write_group() if progress is None else WriteGroup(store)
    fragments = write_fragments(store, batches, target, plan.options, runtime, progress, group)
    try:
        return commit_write(store, plan, target, fragments, group)
    finally:
        group.abandon()
