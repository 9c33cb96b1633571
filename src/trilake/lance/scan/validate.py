"""Validation: every file that a version names is there, and is what the manifest says."""

from __future__ import annotations

import numpy as np

from trilake.errors import CorruptLogError, MissingFileError
from trilake.lance.scan.snapshot import Snapshot


def validate(snapshot: Snapshot) -> None:
    """Check one version: fields, fragments, data files, deletion files and the files of indices.

    Pages are not decoded; reading does that.  Raises ``CorruptLogError``, ``CorruptFileError``, ``MissingFileError`` or
    ``DeletionVectorError``.
    """
    manifest, uri = snapshot.manifest, snapshot.store.uri
    ids = manifest.schema.field_ids
    if len(set(ids)) < len(ids):
        raise CorruptLogError("two fields have the same id", file=uri, version=manifest.version)
    for reader in snapshot.readers:
        fragment = reader.fragment
        fields = [id for f in fragment.files for id in f.fields]
        if len(set(fields)) < len(fields):
            raise CorruptLogError("two data files of a fragment have the same field", file=uri, fragment=fragment.id)
        offsets = [reader.file(entry).batch_offsets for entry in fragment.files]
        if any(not np.array_equal(o, offsets[0]) for o in offsets):
            raise CorruptLogError(
                "the data files of a fragment are cut into different batches", file=uri, fragment=fragment.id
            )
        if len(reader.deleted_set) > reader.physical_rows:
            raise CorruptLogError("more rows are deleted than there are", file=uri, fragment=fragment.id)
    for index in manifest.indices:
        if next(iter(snapshot.store.list(f"_indices/{index.uuid}")), None) is None:
            raise MissingFileError(
                f"the files of index {index.name!r} are not there", file=f"{uri}/_indices/{index.uuid}"
            )
