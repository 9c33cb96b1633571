"""Compaction: small fragments, and those with many deleted rows, become fewer and larger ones.

Two commits, as other writers of the format do it: the first reserves ids for the new fragments, so that their row ids
are known and indices can be moved, the second puts them in the place of the old ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.arguments import count, flag
from trilake.common.display import Displayed
from trilake.errors import CorruptLogError, InvalidArgumentError
from trilake.lance.commands import indices
from trilake.lance.commands.fragment_writer import Target, WriteOptions, discard, discarded_on_failure, write_fragments
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.view import View
from trilake.lance.proto import DecodeError
from trilake.lance.proto import format_pb2 as pb
from trilake.lance.scan.fragment_reader import FragmentReader, addresses
from trilake.lance.scan.scan import ScanPlan, scan
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.effects import carried
from trilake.lance.versions.manifest import Fragment, fragment_message, parse_fragment

#: Bounds of what a compaction reads.
_BUDGETS = ("max_source_fragments", "max_source_rows", "max_source_bytes")


class OptionError(InvalidArgumentError, OSError):
    """An option has a value that cannot be."""


@dataclass(frozen=True)
class CompactionOptions:
    """The choice of fragments that a compaction joins, and the shape of what it writes.

    Parameters
    ----------
    target_rows_per_fragment: fragments with fewer rows are joined with their neighbours.
    max_rows_per_group: rows of a row group of new files.
    materialize_deletions: whether fragments with deleted rows are written again without them.
    materialize_deletions_threshold: from which part of deleted rows on.
    num_threads: a hint.
    max_bytes_per_file: of new files; looked at behind each batch.
    batch_size: rows of a batch that is read and written.
    max_source_fragments, max_source_rows, max_source_bytes: of all fragments that are read; runs that would go beyond
        one of them are left for later.
    excluded_fragment_ids: of fragments that stay as they are.
    """

    target_rows_per_fragment: int = 1 << 20
    max_rows_per_group: int = 1024
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    num_threads: int | None = None
    max_bytes_per_file: int | None = None
    batch_size: int | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("target_rows_per_fragment", "max_rows_per_group"):
            count(name, getattr(self, name), least=1, other_type=WrongTypeError)
        if self.num_threads is not None:
            count("num_threads", self.num_threads, least=1, other_type=WrongTypeError)
        for name in ("max_bytes_per_file", "batch_size", *_BUDGETS):
            value = getattr(self, name)
            if value is not None and count(name, value, other_type=WrongTypeError) < 1:
                raise OptionError(f"{name} must be greater than 0, got {value}", help="leave it out for no bound")
        excluded = tuple(count("excluded_fragment_ids", id, other_type=WrongTypeError) for id in self._excluded())
        object.__setattr__(self, "excluded_fragment_ids", excluded)
        flag("materialize_deletions", self.materialize_deletions)
        part: object = self.materialize_deletions_threshold
        if not isinstance(part, int | float) or not 0 <= part <= 1:
            raise InvalidArgumentError(
                f"materialize_deletions_threshold is {part!r}", help="it is a part of the rows, such as 0.1"
            )

    def _excluded(self) -> Sequence[int]:
        ids: Any = self.excluded_fragment_ids
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise WrongTypeError(f"excluded_fragment_ids is {ids!r}", help="pass a list of ids")
        return list(ids)


@dataclass
class CompactionMetrics(Displayed):
    """What a compaction has done."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0


@dataclass(frozen=True)
class CompactionTask:
    """Fragments that become others; may run in another process."""

    fragments: tuple[Fragment, ...]
    read_version: int
    options: CompactionOptions = CompactionOptions()

    def execute(self, dataset: Any) -> RewriteResult:
        """Write the new files; nothing is committed."""
        snapshot = dataset.snapshot
        if snapshot.version != self.read_version:
            snapshot = Snapshot.open(snapshot.store, snapshot.runtime, self.read_version)
        return rewrite(snapshot, self)

    def json(self) -> str:
        """The task as text, for another process."""
        return json.dumps(
            {"fragments": _texts(self.fragments), "read_version": self.read_version, "options": asdict(self.options)}
        )

    @staticmethod
    def from_json(text: str) -> CompactionTask:
        """The task in a text.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(text, "fragments", "read_version", "options")
        try:
            options = CompactionOptions(**parsed["options"])
        except TypeError as e:
            raise InvalidArgumentError(f"these are no options of a compaction: {e}") from e
        return CompactionTask(_fragments(parsed["fragments"]), parsed["read_version"], options)


@dataclass(frozen=True)
class RewriteResult:
    """The old and new fragments of a task that has run."""

    original_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]
    read_version: int

    @property
    def metrics(self) -> CompactionMetrics:
        """What the task has done."""
        old, new = self.original_fragments, self.new_fragments
        return CompactionMetrics(
            len(old),
            len(new),
            sum(len(f.files) + (f.deletion_file is not None) for f in old),
            sum(len(f.files) for f in new),
        )

    def json(self) -> str:
        """The result as text, for another process."""
        return json.dumps(
            {
                "original_fragments": _texts(self.original_fragments),
                "new_fragments": _texts(self.new_fragments),
                "read_version": self.read_version,
            }
        )

    @staticmethod
    def from_json(text: str) -> RewriteResult:
        """The result in a text.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(text, "original_fragments", "new_fragments", "read_version")
        old, new = _fragments(parsed["original_fragments"]), _fragments(parsed["new_fragments"])
        return RewriteResult(old, new, parsed["read_version"])


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction."""

    tasks: tuple[CompactionTask, ...]
    read_version: int

    def num_tasks(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    def json(self) -> str:
        """The plan as text, for another process."""
        return json.dumps({"tasks": [task.json() for task in self.tasks], "read_version": self.read_version})

    @staticmethod
    def from_json(text: str) -> CompactionPlan:
        """The plan in a text.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(text, "tasks", "read_version")
        if not isinstance(parsed["tasks"], list):
            raise InvalidArgumentError("this is no plan of a compaction")
        return CompactionPlan(tuple(map(CompactionTask.from_json, parsed["tasks"])), parsed["read_version"])


def _texts(fragments: Sequence[Fragment]) -> list[str]:
    return [fragment_message(f).SerializeToString(deterministic=True).hex() for f in fragments]


def _fragments(texts: Sequence[str]) -> tuple[Fragment, ...]:
    try:
        return tuple(parse_fragment(pb.DataFragment.FromString(bytes.fromhex(t))) for t in texts)
    except (ValueError, TypeError, DecodeError, CorruptLogError) as e:
        raise InvalidArgumentError(f"this is no fragment of a compaction: {e}") from e


def _parsed(text: str, *keys: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, TypeError) as e:
        raise InvalidArgumentError(f"this is no part of a compaction: {e}") from e
    if not isinstance(parsed, dict) or set(parsed) != set(keys):
        raise InvalidArgumentError("this is no part of a compaction", help=f"it must have {', '.join(keys)}")
    version = parsed["read_version"]
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidArgumentError(f"a compaction does not read version {version!r}")
    return parsed


# --- planning --------------------------------------------------------------------------------------------------------


def plan_compaction(snapshot: Snapshot, options: CompactionOptions | None = None) -> CompactionPlan:
    """The runs of neighbouring fragments that are worth to be written again.

    The rows of a run keep their order, and come behind those of the fragments that stay; a small fragment between two
    large ones is no run.  A run does not mix fragments that an index covers with others that it does not, or fragments
    whose files have different columns.
    """
    options = options or CompactionOptions()
    tasks: list[CompactionTask] = []
    run: list[FragmentReader] = []
    rows = 0
    coverage: object = None

    def close() -> None:
        nonlocal run, rows
        if len(run) > 1 or (run and _has_many_deleted(run[0], options)):
            tasks.append(CompactionTask(tuple(r.fragment for r in run), snapshot.version, options))
        run, rows = [], 0

    for reader in snapshot.readers:
        columns = present(snapshot, reader).field_ids
        covers = (
            columns,
            *sorted(
                i.uuid
                for i in snapshot.manifest.indices
                if i.fragment_bitmap is not None and reader.fragment.id in i.fragment_bitmap
            ),
        )
        if reader.fragment.id in options.excluded_fragment_ids:
            close()
            continue
        small = reader.num_rows < options.target_rows_per_fragment
        if not columns or (not small and not _has_many_deleted(reader, options)):
            close()
            continue
        if covers != coverage or rows >= options.target_rows_per_fragment:
            close()
        coverage = covers
        run.append(reader)
        rows += reader.num_rows
    close()
    return CompactionPlan(tuple(_within_budget(snapshot, tasks, options)), snapshot.version)


def _within_budget(
    snapshot: Snapshot, tasks: Sequence[CompactionTask], options: CompactionOptions
) -> Iterator[CompactionTask]:
    """The first tasks, as many as read no more than the options say."""
    limits = [getattr(options, name) for name in _BUDGETS]
    total = np.zeros(len(limits), np.int64)
    for task in tasks:
        readers = [snapshot.reader(f) for f in task.fragments]
        files = [f for fragment in task.fragments for f in fragment.files]
        sizes = 0 if limits[2] is None else sum(f.size_bytes or snapshot.store.head(f.key).size for f in files)
        total += (len(readers), sum(r.num_rows for r in readers), sizes)
        if any(limit is not None and used > limit for limit, used in zip(limits, total.tolist(), strict=True)):
            return
        yield task


def _has_many_deleted(reader: FragmentReader, options: CompactionOptions) -> bool:
    deleted = reader.num_deleted
    return options.materialize_deletions and deleted > options.materialize_deletions_threshold * reader.physical_rows


# --- running ---------------------------------------------------------------------------------------------------------


def rewrite(snapshot: Snapshot, task: CompactionTask) -> RewriteResult:
    """Write the live rows of a task's fragments into new files."""
    readers = [snapshot.reader(f) for f in task.fragments]
    schema = present(snapshot, readers[0])
    # As they are stored: companions are columns like others here, and what no file has stays so.
    view = View(schema, folded=False, blob_bytes=True)
    rows = _sliced(scan(ScanPlan(view, view.schema), readers), task.options.batch_size)
    options = WriteOptions(task.options.target_rows_per_fragment, task.options.max_rows_per_group)
    if task.options.max_bytes_per_file is not None:
        options = replace(options, max_bytes_per_file=task.options.max_bytes_per_file)
    target = Target(schema, snapshot.manifest.storage_version, folded=False)
    new = tuple(write_fragments(snapshot.store, rows, target, options, snapshot.runtime))
    return RewriteResult(task.fragments, _with_ids(new, readers) if _is_stable(snapshot) else new, task.read_version)


def _sliced(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """The batches, those of more rows in slices."""
    for batch in batches:
        size = rows or max(batch.num_rows, 1)
        yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def _is_stable(snapshot: Snapshot) -> bool:
    return snapshot.manifest.has_stable_row_ids


def _with_ids(new: tuple[Fragment, ...], readers: Sequence[FragmentReader]) -> tuple[Fragment, ...]:
    """New fragments with the stable ids and versions of the live rows of old ones."""
    live = [reader.offsets_of_live(np.arange(reader.num_rows, dtype=np.int64)) for reader in readers]
    pairs = list(zip(readers, live, strict=True))
    ids = [reader.ids_of(offsets) for reader, offsets in pairs]
    created, updated = ([getattr(r, name)[offsets] for r, offsets in pairs] for name in ("created", "updated"))
    return carried(new, np.concatenate(ids), np.concatenate(created), np.concatenate(updated))


def present(snapshot: Snapshot, reader: FragmentReader) -> LanceSchema:
    """The stored columns that a fragment's files have."""
    whole = snapshot.manifest.schema
    missing = {f.id for f in reader.missing(whole)}
    return LanceSchema(tuple(f for f in whole.fields if f.id not in missing), whole.metadata, whole.dictionaries)


def _moved_indices(snapshot: Snapshot, groups: Sequence[op.RewriteGroup]) -> tuple[op.RewrittenIndex, ...]:
    """Write the indices anew for the row ids that live rows get: new files hold them in the order of the old ones."""
    if not any(i.by_address or not _is_stable(snapshot) for i in snapshot.manifest.indices):
        return ()
    before, after = [], []
    for group in groups:
        for fragment in group.old:
            reader = snapshot.reader(fragment)
            live = reader.offsets_of_live(np.arange(reader.num_rows, dtype=np.int64))
            before.append(addresses(fragment.id, live))
        after += [addresses(f.id, np.arange(f.physical_rows, dtype=np.int64)) for f in group.new]
    rewritten = {f.id for group in groups for f in group.old}
    return indices.remap(snapshot, np.concatenate(before), np.concatenate(after), rewritten)


def commit_compaction(snapshot: Snapshot, results: Sequence[RewriteResult]) -> tuple[Snapshot, CompactionMetrics]:
    """Put the new fragments of tasks that have run in the place of the old ones.

    Raises ``ConflictError`` where somebody changed the old fragments meanwhile.
    """
    metrics = CompactionMetrics()
    results = [result for result in results if result.original_fragments]
    if not results:
        return snapshot, metrics
    for result in results:
        for name in ("fragments_removed", "fragments_added", "files_removed", "files_added"):
            setattr(metrics, name, getattr(metrics, name) + getattr(result.metrics, name))
    read_version = min(result.read_version for result in results)
    count = sum(len(result.new_fragments) for result in results)
    written = [f for result in results for f in result.new_fragments]
    with discarded_on_failure(snapshot.store, written):
        reserve = transaction.begin(read_version, op.ReserveFragments(count), snapshot.runtime)
        known = snapshot.manifest if snapshot.version == read_version else None
        reserved = transaction.commit(snapshot.store, reserve, snapshot.runtime, base=known)
        next_id = reserved.max_fragment_id - count + 1
        base = (
            snapshot
            if snapshot.version == read_version
            else Snapshot.open(snapshot.store, snapshot.runtime, read_version)
        )
        groups = []
        for result in results:
            new = tuple(replace(f, id=next_id + i) for i, f in enumerate(result.new_fragments))
            next_id += len(new)
            groups.append(op.RewriteGroup(result.original_fragments, new))
        moved = _moved_indices(base, groups)
        return snapshot.commit(op.Rewrite(tuple(groups), moved), read_version), metrics


def compact(snapshot: Snapshot, options: CompactionOptions | None = None) -> tuple[Snapshot, CompactionMetrics]:
    """Plan, run and commit a compaction; nothing is committed where nothing is worth it."""
    snapshot.manifest.check_writable(snapshot.store.uri)
    plan = plan_compaction(snapshot, options)
    results: list[RewriteResult] = []
    try:
        for task in plan.tasks:
            results.append(rewrite(snapshot, task))  # noqa: PERF401 - those before a failure are removed
    except BaseException:
        discard(snapshot.store, [f for r in results for f in r.new_fragments])
        raise
    return commit_compaction(snapshot, results)
