"""Z-cubes: sets of files that one run of clustering wrote together, identified by tags in their ``add`` actions.

Later runs skip large cubes, which makes clustering incremental.  Files without a cube and small cubes are clustered
together again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.optimize.bins import Numbers, packed, sizes_of
from trilake.delta.commands.optimize.metrics import ClusteringFileStats, ClusteringStats

ID, COLUMNS, CURVE = "ZCUBE_ID", "ZCUBE_ZORDER_BY", "ZCUBE_ZORDER_CURVE"
#: The value of ``add.clusteringProvider``.
PROVIDER = "liquid"
#: Bytes of a cube that is final, and at which a new cube is closed; delta-spark's value.
MIN_CUBE_SIZE = 100 << 30
TARGET_CUBE_SIZE = 150 << 30


def cube_tags(cube: str, columns: Sequence[str], curve: str) -> dict[str, str]:
    """The tags of a new file."""
    return {ID: cube, COLUMNS: orjson.dumps(list(columns)).decode(), CURVE: curve}


def _tag(adds: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.map_lookup(adds["tags"], pa.scalar(name, pa.string()), "first")


class Cubes:
    """The files of a clustered table by cube: which of them a run takes, and its statistics."""

    def __init__(self, adds: pa.Table, columns: Sequence[str]) -> None:
        self.sizes = sizes_of(adds)
        self.count = adds.num_rows
        ids = _tag(adds, ID)
        in_cube = np.asarray(pc.is_valid(ids))
        columns_json = orjson.dumps(list(columns)).decode()
        same = np.asarray(pc.fill_null(pc.equal(_tag(adds, COLUMNS), columns_json), False))
        foreign = np.asarray(pc.fill_null(pc.not_equal(adds["clusteringProvider"], PROVIDER), False))
        #: The cube number by these columns; -1 without one.
        self.cube = np.full(self.count, -1, dtype=np.int64)
        self.matching = in_cube & same & ~foreign
        encoded = pc.dictionary_encode(pc.fill_null(ids, "")).combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.chunk(0)
        self.cube[self.matching] = encoded.indices.to_numpy(zero_copy_only=False)[self.matching]
        #: Files clustered by other columns, or by another writer.
        self.other = (in_cube & ~same) | foreign

    def chosen(self, *, full: bool, min_size: int) -> Numbers:
        """The files to cluster, unclustered ones first; with ``full``, all files."""
        if full:
            take = np.ones(self.count, dtype=bool)
        else:
            total = np.zeros(max(self.count, 1))
            if self.matching.any():
                sums = np.bincount(self.cube[self.matching], weights=self.sizes[self.matching])
                total = np.concatenate([sums, np.zeros(1)])
            small = self.matching & (total[np.where(self.matching, self.cube, 0)] < min_size)
            loose = ~self.matching & ~self.other
            take = small | loose
            if not loose.any() and len(np.unique(self.cube[small])) < 2:
                take = np.zeros(self.count, dtype=bool)  # one cube and nothing to add to it
        chosen = np.flatnonzero(take)
        return chosen[np.argsort(self.cube[chosen], kind="stable")]

    def bins(self, chosen: Numbers, *, target_size: int) -> list[Numbers]:
        """The chosen files as new cubes of about ``target_size`` bytes."""
        return [np.sort(chosen[piece]) for piece in packed(self.sizes[chosen], target_size)]

    def stats(self, chosen: Numbers, cubes: int, *, full: bool) -> ClusteringStats:
        """The statistics of a run that rewrote ``chosen`` into ``cubes``."""
        inside = self.matching | self.other if full else self.matching
        others = ~inside
        return ClusteringStats(
            ClusteringFileStats(int(inside.sum()), int(self.sizes[inside].sum())),
            ClusteringFileStats(int(others.sum()), int(self.sizes[others].sum())),
            len(np.unique(self.cube[self.matching])),
            ClusteringFileStats(len(chosen), int(self.sizes[chosen].sum())),
            cubes,
        )


def tagged(add: Mapping[str, object], tags: Mapping[str, str]) -> dict[str, object]:
    """A new file as part of a cube."""
    old_tags: Any = add.get("tags") or {}
    return {**add, "tags": {**old_tags, **tags}, "clusteringProvider": PROVIDER}
