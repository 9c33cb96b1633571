"""``DatasetOptimizer``: compaction of a dataset's files; ``Compaction``: the same in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trilake.errors import InvalidArgumentError
from trilake.lance import compaction, indices
from trilake.lance.compaction import CompactionMetrics, CompactionOptions, CompactionPlan, RewriteResult

if TYPE_CHECKING:
    from trilake.lance.lance_dataset import LanceDataset


class DatasetOptimizer:
    """Upkeep of one dataset."""

    def __init__(self, dataset: LanceDataset) -> None:
        self._dataset = dataset

    def compact_files(
        self,
        *,
        target_rows_per_fragment: int = 1 << 20,
        max_rows_per_group: int = 1024,
        materialize_deletions: bool = True,
        materialize_deletions_threshold: float = 0.1,
        num_threads: int | None = None,
    ) -> CompactionMetrics:
        """Join small fragments, and write those with many deleted rows anew.

        Parameters are those of :class:`~trilake.lance.compaction.CompactionOptions`.
        """
        options = CompactionOptions(
            target_rows_per_fragment,
            max_rows_per_group,
            materialize_deletions,
            materialize_deletions_threshold,
            num_threads,
        )
        done, metrics = compaction.compact(self._dataset.snapshot, options)
        self._dataset.moved(done)
        return metrics

    def optimize_indices(self) -> None:
        """Make scalar indices anew that do not cover all rows; vector indices stay as they are."""
        self._dataset.moved(indices.optimize(self._dataset.snapshot))


class Compaction:
    """A compaction in parts: planned at one place, run at many, committed at one."""

    @staticmethod
    def plan(dataset: LanceDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """The tasks; each has ``execute(dataset)`` and goes through ``json()`` and ``from_json``."""
        return compaction.plan_compaction(dataset.snapshot, _options(options))

    @staticmethod
    def commit(dataset: LanceDataset, rewrites: Sequence[RewriteResult]) -> CompactionMetrics:
        """Make the results of tasks a version."""
        done, metrics = compaction.commit_compaction(dataset.snapshot, rewrites)
        dataset.moved(done)
        return metrics

    @staticmethod
    def execute(dataset: LanceDataset, options: Mapping[str, Any] | None = None) -> CompactionMetrics:
        """All of it, here."""
        done, metrics = compaction.compact(dataset.snapshot, _options(options))
        dataset.moved(done)
        return metrics


def _options(given: Mapping[str, Any] | None) -> CompactionOptions:
    chosen = {k: v for k, v in (given or {}).items() if v is not None}
    unknown = set(chosen) - set(CompactionOptions.__dataclass_fields__)
    if unknown:
        raise InvalidArgumentError(
            f"a compaction has no option {min(unknown)!r}",
            help=f"options are {', '.join(CompactionOptions.__dataclass_fields__)}",
        )
    return CompactionOptions(**chosen)
