"""Migrate a dataset to another file version, or its manifests to the v2 naming scheme."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from trilake.errors import InvalidArgumentError, ObjectExistsError
from trilake.lance.commands.fragment_writer import Target, WriteOptions, write_fragments
from trilake.lance.commands.replan import replanned_with_files
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import STABLE, StorageVersion
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.versions import LATEST, VERSIONS, manifest_key
from trilake.storage.base import Store

_NAME = re.compile(rf"{VERSIONS}/([0-9]{{1,19}})\.manifest\Z")


def migrate(snapshot: Snapshot, version: StorageVersion = STABLE) -> Snapshot:
    """Rewrite all rows in files of another version, as one commit; null companions become nulls.

    Columns keep their ids.  Deleted rows and indices are dropped.  Raises ``InvalidArgumentError`` for an older
    version, ``UnsupportedProtocolError`` for columns that it does not support, and ``ConflictError`` after repeated
    conflicts.
    """

    def plan(current: Snapshot, written: list[Fragment]) -> op.Operation:
        if version < current.manifest.storage_version:
            raise InvalidArgumentError(
                f"the dataset already has files of the newer version {current.manifest.storage_version}",
                help="write the rows to a new dataset",
                file=current.store.uri,
            )
        stored = current.view.schema
        schema = LanceSchema(stored.fields, stored.metadata, current.manifest.schema.dictionaries)
        target = Target(schema, version, folded=False)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in current.scan(current.plan(view=current.rows_view)):
                yield pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)

        written += write_fragments(current.store, rows(), target, WriteOptions(), current.runtime)
        return op.Overwrite(tuple(written), schema, storage_version=version, migrates=True)

    return replanned_with_files(snapshot, plan)


def migrate_manifest_names(store: Store) -> None:
    """Rename manifests so that listings start with the newest; can be repeated after a failure.

    Other writers must be stopped: a commit under an old name would be lost.
    """
    for meta in sorted(store.list(VERSIONS), key=lambda m: m.key):
        match = _NAME.match(meta.key)
        if match is None:
            continue
        data = store.read(meta.key)
        key = manifest_key(int(match[1]), "v2")
        try:
            store.put_if_absent(key, data.to_pybytes())
        except ObjectExistsError:
            if store.read(key).to_pybytes() != data.to_pybytes():
                raise
        store.delete([meta.key])
    store.delete([LATEST])
