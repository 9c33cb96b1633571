"""``DatasetOptimizer``: compaction and index maintenance; ``Compaction``: distributed compaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import INTERVAL, OLDER_THAN, RETAIN, AutoCleanupConfig, config_of
from trilake.lance.commands import compaction
from trilake.lance.commands.compaction import (
    CompactionMetrics,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
    commit_compaction,
    compact,
    plan_compaction,
)
from trilake.lance.commands.format_options import check_format, is_known
from trilake.lance.commands.index_segments import optimize
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.commands.schema_metadata import update_map

__all__ = ["Compaction", "CompactionOptions", "CompactionPlan", "CompactionTask", "DatasetOptimizer", "RewriteResult"]


class CompactionOptions(TypedDict, total=False):
    """Options as a dict, as in pylance.

    See :class:`trilake.lance.commands.compaction.CompactionOptions`; other options of pylance must have their default
    values.

    >>> CompactionOptions(target_rows_per_fragment=1000)
    {'target_rows_per_fragment': 1000}
    """

    target_rows_per_fragment: int | None
    max_rows_per_group: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    num_threads: int | None
    batch_size: int | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: Collection[int] | None
    io_buffer_size: int | None
    compaction_mode: str | None
    binary_copy_read_batch_bytes: int | None
    defer_index_remap: bool | None


class DatasetOptimizer:
    """Maintenance of a dataset."""

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def compact_files(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        max_rows_per_group: int | None = None,
        materialize_deletions: bool | None = None,
        materialize_deletions_threshold: float | None = None,
        num_threads: int | None = None,
        **later: Any,
    ) -> CompactionMetrics:
        """Merge small fragments, and rewrite those with many deleted rows.

        Parameters are those of :class:`~trilake.lance.commands.compaction.CompactionOptions`; other options of pylance
        must have their default values.
        """
        options = {
            **later,
            "target_rows_per_fragment": target_rows_per_fragment,
            "max_rows_per_group": max_rows_per_group,
            "materialize_deletions": materialize_deletions,
            "materialize_deletions_threshold": materialize_deletions_threshold,
            "num_threads": num_threads,
        }
        return Compaction.execute(self._dataset, options)

    def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig) -> None:
        """Enable automatic clean-ups; see :mod:`trilake.lance.cleanup`."""
        self._dataset.moved(update_map(self._dataset.snapshot, "config", config_of(auto_cleanup_config)))

    def disable_auto_cleanup(self) -> None:
        """Disable automatic clean-ups."""
        unset = dict.fromkeys((INTERVAL, OLDER_THAN, RETAIN))
        self._dataset.moved(update_map(self._dataset.snapshot, "config", unset))

    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Collection[str] | None = None,
        retrain: bool = False,
    ) -> None:
        """Add new rows to the indices.

        Parameters are those of :func:`~trilake.lance.commands.index_segments.optimize`, whose ``names`` is
        ``index_names`` here.
        """
        snapshot = self._dataset.snapshot
        done = optimize(snapshot, index_names, retrain=retrain, num_indices_to_merge=num_indices_to_merge)
        self._dataset.moved(done)


class Compaction:
    """Distributed compaction: plan, execute the tasks anywhere, commit."""

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """Plan the tasks; each has a method ``execute(dataset)`` and can be sent as JSON."""
        return plan_compaction(dataset.snapshot, _options(options))

    @staticmethod
    def commit(
        dataset: OpenDataset, rewrites: Sequence[RewriteResult], options: Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Commit finished tasks; ``options`` have no effect, as the tasks already follow those of the plan."""
        _options(options)
        done, metrics = commit_compaction(dataset.snapshot, rewrites)
        dataset.moved(done)
        return metrics

    @staticmethod
    def execute(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionMetrics:
        """Plan, execute and commit locally."""
        done, metrics = compact(dataset.snapshot, _options(options))
        dataset.moved(done)
        return metrics


def _options(options: Mapping[str, Any] | None) -> compaction.CompactionOptions:
    explicit = {k: v for k, v in (options or {}).items() if v is not None}
    later = {k: explicit.pop(k) for k in list(explicit) if is_known(k)}
    check_format(later, of="a compaction")
    names = compaction.CompactionOptions.__dataclass_fields__
    unknown = set(explicit) - set(names)
    if unknown:
        raise InvalidArgumentError(
            f"unknown compaction option {min(unknown)!r}",
            help=f"options are {', '.join(names)}",
        )
    return compaction.CompactionOptions(**explicit)
