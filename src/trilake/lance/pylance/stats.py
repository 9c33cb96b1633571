"""``LanceStats``: numbers about a dataset and its indices."""

from __future__ import annotations

from typing import Any, TypedDict

from trilake.lance.commands import indices
from trilake.lance.commands.open_dataset import OpenDataset


class DatasetStats(TypedDict):
    """Numbers about a dataset."""

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


class LanceStats:
    """Numbers about one dataset at its version."""

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def dataset_stats(self, max_rows_per_group: int = 1024) -> DatasetStats:
        """``num_deleted_rows``, ``num_fragments``, and ``num_small_files``: fragments with fewer rows than a group."""
        readers = self._dataset.snapshot.readers
        return {
            "num_deleted_rows": sum(r.num_deleted for r in readers),
            "num_fragments": len(readers),
            "num_small_files": sum(r.physical_rows < max_rows_per_group for r in readers),
        }

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """What an index says of itself, how many rows it covers, and how often one was open already.

        Raises ``UnknownIndexError``, which is a ``KeyError``.
        """
        snapshot = self._dataset.snapshot
        numbers = indices.statistics(snapshot, index_name)
        numbers["index_cache_entry_count"] = snapshot.indices.entry_count
        numbers["index_cache_hit_rate"] = snapshot.indices.hit_rate
        return numbers
