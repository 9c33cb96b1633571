"""``DatasetOptimizer``: compaction and index maintenance; ``Compaction``: distributed compaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.auto_cleanup import INTERVAL, OLDER_THAN, RETAIN, AutoCleanupConfig, config_of
from trilake.lance.commands import compaction
from trilake.lance.commands.compaction import CompactionMetrics, CompactionOptions
from trilake.lance.commands.format_options import check_format, is_known
from trilake.lance.commands.index_segments import optimize
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.commands.schema_metadata import update_config
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment


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
        done, metrics = compaction.compact(self._dataset.snapshot, _options(options))
        self._dataset.moved(done)
        return metrics

    def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig) -> None:
        """Enable automatic clean-ups; see :mod:`trilake.lance.auto_cleanup`."""
        self._dataset.moved(update_config(self._dataset.snapshot, config_of(auto_cleanup_config)))

    def disable_auto_cleanup(self) -> None:
        """Disable automatic clean-ups."""
        self._dataset.moved(update_config(self._dataset.snapshot, dict.fromkeys((INTERVAL, OLDER_THAN, RETAIN))))

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


@dataclass(frozen=True)
class RewriteResult:
    """The result of a task; can be pickled or serialized to JSON."""

    done: compaction.RewriteResult

    @property
    def read_version(self) -> int:
        """Version that the task read."""
        return self.done.read_version

    @property
    def metrics(self) -> CompactionMetrics:
        """Metrics of the task."""
        return self.done.metrics

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """Fragments that were rewritten."""
        return _metadata(self.done.original_fragments)

    @property
    def old_fragments(self) -> list[FragmentMetadata]:
        """Alias of :attr:`original_fragments`."""
        return self.original_fragments

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """New fragments."""
        return _metadata(self.done.new_fragments)

    def json(self) -> str:
        """Serialize the result to JSON."""
        return self.done.json()

    @staticmethod
    def from_json(json_string: str) -> RewriteResult:
        """Parse a result from JSON.  Raises ``InvalidArgumentError``."""
        return RewriteResult(compaction.RewriteResult.from_json(json_string))

    def __repr__(self) -> str:
        new, old = self.new_fragments, self.old_fragments
        return f"RewriteResult(read_version={self.read_version}, new_fragments={new}, old_fragments={old})"


@dataclass(frozen=True)
class CompactionTask:
    """Fragments to rewrite together; can be pickled or serialized to JSON."""

    task: compaction.CompactionTask

    @property
    def read_version(self) -> int:
        """Version that the task reads."""
        return self.task.read_version

    @property
    def fragments(self) -> list[FragmentMetadata]:
        """Fragments to rewrite."""
        return _metadata(self.task.fragments)

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the new files without a commit."""
        return RewriteResult(self.task.execute(dataset))

    def json(self) -> str:
        """Serialize the task to JSON."""
        return self.task.json()

    @staticmethod
    def from_json(json_string: str) -> CompactionTask:
        """Parse a task from JSON.  Raises ``InvalidArgumentError``."""
        return CompactionTask(compaction.CompactionTask.from_json(json_string))

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction; can be pickled or serialized to JSON."""

    plan: compaction.CompactionPlan

    @property
    def read_version(self) -> int:
        """Version that the tasks read."""
        return self.plan.read_version

    @property
    def tasks(self) -> list[CompactionTask]:
        """Tasks of the plan."""
        return [CompactionTask(task) for task in self.plan.tasks]

    def num_tasks(self) -> int:
        """Number of tasks."""
        return self.plan.num_tasks()

    def json(self) -> str:
        """Serialize the plan to JSON."""
        return self.plan.json()

    @staticmethod
    def from_json(json_string: str) -> CompactionPlan:
        """Parse a plan from JSON.  Raises ``InvalidArgumentError``."""
        return CompactionPlan(compaction.CompactionPlan.from_json(json_string))

    def __repr__(self) -> str:
        return f"CompactionPlan(read_version={self.read_version}, tasks=<{self.num_tasks()} compaction tasks>)"


def _metadata(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return [FragmentMetadata.of(f) for f in fragments]


class Compaction:
    """Distributed compaction: plan, execute the tasks anywhere, commit."""

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """Plan the tasks; each has a method ``execute(dataset)`` and can be sent as JSON."""
        return CompactionPlan(compaction.plan_compaction(dataset.snapshot, _options(options)))

    @staticmethod
    def commit(
        dataset: OpenDataset, rewrites: Sequence[RewriteResult], options: Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Commit finished tasks; ``options`` have no effect, as the tasks already follow those of the plan."""
        _options(options)
        done, metrics = compaction.commit_compaction(dataset.snapshot, [r.done for r in rewrites])
        dataset.moved(done)
        return metrics

    @staticmethod
    def execute(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionMetrics:
        """Plan, execute and commit locally."""
        done, metrics = compaction.compact(dataset.snapshot, _options(options))
        dataset.moved(done)
        return metrics


def _options(options: Mapping[str, Any] | None) -> CompactionOptions:
    explicit = {k: v for k, v in (options or {}).items() if v is not None}
    later = {k: explicit.pop(k) for k in list(explicit) if is_known(k)}
    check_format(later, of="a compaction")
    unknown = set(explicit) - set(CompactionOptions.__dataclass_fields__)
    if unknown:
        raise InvalidArgumentError(
            f"unknown compaction option {min(unknown)!r}",
            help=f"options are {', '.join(CompactionOptions.__dataclass_fields__)}",
        )
    return CompactionOptions(**explicit)
