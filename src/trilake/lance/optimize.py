"""``DatasetOptimizer``: compaction of a dataset's files; ``Compaction``: the same in parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.auto_cleanup import INTERVAL, OLDER_THAN, RETAIN, AutoCleanupConfig, config_of
from trilake.lance.commands import compaction
from trilake.lance.commands.compaction import CompactionMetrics, CompactionOptions
from trilake.lance.commands.format_options import check_format, is_known
from trilake.lance.commands.index_renewal import optimize
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.commands.schema_metadata import update_config
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment


class DatasetOptimizer:
    """Upkeep of one dataset."""

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
        """Join small fragments, and write those with many deleted rows anew.

        Parameters are those of :class:`~trilake.lance.commands.compaction.CompactionOptions`; of others of pylance,
        the values that ask for nothing else are taken.
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
        """Let commits clean up, as a configuration of the dataset says; see :mod:`trilake.lance.auto_cleanup`."""
        self._dataset.moved(update_config(self._dataset.snapshot, config_of(auto_cleanup_config)))

    def disable_auto_cleanup(self) -> None:
        """Let commits clean up no more."""
        self._dataset.moved(update_config(self._dataset.snapshot, dict.fromkeys((INTERVAL, OLDER_THAN, RETAIN))))

    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Collection[str] | None = None,
        retrain: bool = False,
    ) -> None:
        """Bring indices up to date with rows that came since.

        Parameters are those of :func:`~trilake.lance.commands.index_renewal.optimize`; ``index_names`` are its names.
        """
        snapshot = self._dataset.snapshot
        done = optimize(snapshot, index_names, retrain=retrain, num_indices_to_merge=num_indices_to_merge)
        self._dataset.moved(done)


@dataclass(frozen=True)
class RewriteResult:
    """The old and new fragments of a task that has run; it can be pickled, or sent as JSON."""

    done: compaction.RewriteResult

    @property
    def read_version(self) -> int:
        """The version that the task has read."""
        return self.done.read_version

    @property
    def metrics(self) -> CompactionMetrics:
        """What the task has done."""
        return self.done.metrics

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """The fragments that were read."""
        return _metadata(self.done.original_fragments)

    @property
    def old_fragments(self) -> list[FragmentMetadata]:
        """Another name of :attr:`original_fragments`."""
        return self.original_fragments

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """The fragments that were written."""
        return _metadata(self.done.new_fragments)

    def json(self) -> str:
        """The result as text, for another process."""
        return self.done.json()

    @staticmethod
    def from_json(text: str) -> RewriteResult:
        """The result in a text.  Raises ``InvalidArgumentError``."""
        return RewriteResult(compaction.RewriteResult.from_json(text))

    def __repr__(self) -> str:
        new, old = self.new_fragments, self.old_fragments
        return f"RewriteResult(read_version={self.read_version}, new_fragments={new}, old_fragments={old})"


@dataclass(frozen=True)
class CompactionTask:
    """Fragments that become others; it can be pickled, or sent as JSON."""

    task: compaction.CompactionTask

    @property
    def read_version(self) -> int:
        """The version that the task reads."""
        return self.task.read_version

    @property
    def fragments(self) -> list[FragmentMetadata]:
        """The fragments that it reads."""
        return _metadata(self.task.fragments)

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the new files; nothing is committed."""
        return RewriteResult(self.task.execute(dataset))

    def json(self) -> str:
        """The task as text, for another process."""
        return self.task.json()

    @staticmethod
    def from_json(text: str) -> CompactionTask:
        """The task in a text.  Raises ``InvalidArgumentError``."""
        return CompactionTask(compaction.CompactionTask.from_json(text))

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction; it can be pickled, or sent as JSON."""

    plan: compaction.CompactionPlan

    @property
    def read_version(self) -> int:
        """The version that the tasks read."""
        return self.plan.read_version

    @property
    def tasks(self) -> list[CompactionTask]:
        """The tasks."""
        return [CompactionTask(task) for task in self.plan.tasks]

    def num_tasks(self) -> int:
        """Number of tasks."""
        return self.plan.num_tasks()

    def json(self) -> str:
        """The plan as text, for another process."""
        return self.plan.json()

    @staticmethod
    def from_json(text: str) -> CompactionPlan:
        """The plan in a text.  Raises ``InvalidArgumentError``."""
        return CompactionPlan(compaction.CompactionPlan.from_json(text))

    def __repr__(self) -> str:
        return f"CompactionPlan(read_version={self.read_version}, tasks=<{self.num_tasks()} compaction tasks>)"


def _metadata(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return [FragmentMetadata.of(f) for f in fragments]


class Compaction:
    """A compaction in parts: planned at one place, run at many, committed at one."""

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """The tasks; each has ``execute(dataset)`` and goes through ``json()`` and ``from_json``."""
        return CompactionPlan(compaction.plan_compaction(dataset.snapshot, _options(options)))

    @staticmethod
    def commit(
        dataset: OpenDataset, rewrites: Sequence[RewriteResult], options: Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Make the results of tasks a version; ``options`` are those of the plan, which the tasks have followed."""
        _options(options)
        done, metrics = compaction.commit_compaction(dataset.snapshot, [r.done for r in rewrites])
        dataset.moved(done)
        return metrics

    @staticmethod
    def execute(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionMetrics:
        """All of it, here."""
        done, metrics = compaction.compact(dataset.snapshot, _options(options))
        dataset.moved(done)
        return metrics


def _options(options: Mapping[str, Any] | None) -> CompactionOptions:
    chosen = {k: v for k, v in (options or {}).items() if v is not None}
    later = {k: chosen.pop(k) for k in list(chosen) if is_known(k)}
    check_format(later, of="a compaction")
    unknown = set(chosen) - set(CompactionOptions.__dataclass_fields__)
    if unknown:
        raise InvalidArgumentError(
            f"Invalid compaction option: {min(unknown)}",
            help=f"options are {', '.join(CompactionOptions.__dataclass_fields__)}",
        )
    return CompactionOptions(**chosen)
