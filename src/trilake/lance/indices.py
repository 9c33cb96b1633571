"""Indices of a dataset, as its manifest lists them.

An index is a folder of files and an entry in the manifest that says which fragments it covers.  Rows of other fragments
are looked at one by one, deleted rows are left out, so an index never needs to be complete.
"""

from __future__ import annotations

from typing import Any

from trilake.errors import InvalidArgumentError, MissingFileError, UnsupportedProtocolError
from trilake.lance.ivf_pq_search import IvfPqIndex
from trilake.lance.manifest import IndexMetadata
from trilake.lance.snapshot import Snapshot


def find(snapshot: Snapshot, name: str) -> IndexMetadata:
    """The index of a name.  Raises ``InvalidArgumentError`` where there is none."""
    for index in snapshot.manifest.indices:
        if index.name == name:
            return index
    names = ", ".join(i.name for i in snapshot.manifest.indices)
    raise InvalidArgumentError(
        f"there is no index {name!r}", help=f"there are {names or 'none'}", file=snapshot.store.uri
    )


def list_indices(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The indices of a version, as dictionaries."""
    found = []
    for index in snapshot.manifest.indices:
        fields = [snapshot.manifest.schema.by_id(id) for id in index.fields]
        found.append(
            {
                "name": index.name,
                "type": "Vector",
                "uuid": str(index.uuid),
                "fields": [f.name for f in fields if f is not None],
                "version": index.dataset_version,
                "fragment_ids": set(index.fragment_bitmap or ()),
            }
        )
    return found


def statistics(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Which rows an index covers, and what a vector index says of itself.

    ``uuid``, ``num_indexed_rows`` and ``num_unindexed_rows``, and for IVF_PQ ``metric_type``, ``num_partitions``,
    ``sub_index`` and ``partitions``.
    """
    index = find(snapshot, name)
    try:
        own = IvfPqIndex.open(snapshot.store, f"_indices/{index.uuid}").statistics()
    except (UnsupportedProtocolError, MissingFileError):
        own = {}  # of another kind, or of a newer writer
    covered = index.fragment_bitmap or ()
    counts = {True: 0, False: 0}
    for reader in snapshot.readers:
        counts[reader.fragment.id in covered] += reader.num_rows
    return {**own, "uuid": str(index.uuid), "num_indexed_rows": counts[True], "num_unindexed_rows": counts[False]}
