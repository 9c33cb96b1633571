"""Compaction: rewrite small fragments, and those with many deleted rows, as fewer and larger ones.

Like pylance, compaction makes two commits: the first reserves ids for the new fragments, so that their row ids are
fixed and indices can be remapped; the second replaces the old fragments.
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
from trilake.lance.file.errors import OptionError, WrongTypeError
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

#: Limits on the input of a compaction.
_BUDGETS = ("max_source_fragments", "max_source_rows", "max_source_bytes")


@dataclass(frozen=True)
class CompactionOptions:
    """Options of compaction: which fragments to rewrite, and the layout of the new files.

    Parameters
    ----------
    target_rows_per_fragment: smaller fragments are merged with their neighbors.
    max_rows_per_group: maximum rows of a row group.
    materialize_deletions: whether to rewrite fragments to remove deleted rows.
    materialize_deletions_threshold: minimum fraction of deleted rows for this rewrite.
    num_threads: a hint without effect.
    max_bytes_per_file: maximum size of new files, checked after each batch.
    batch_size: number of rows to read and write at a time.
    max_source_fragments, max_source_rows, max_source_bytes: limits on the total input; fragments beyond them are left
        for a later compaction.
    excluded_fragment_ids: fragments to leave alone.
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
                raise OptionError(f"{name} must be greater than 0, got {value}", help="leave it out for no limit")
        excluded = tuple(count("excluded_fragment_ids", id, other_type=WrongTypeError) for id in self._excluded())
        object.__setattr__(self, "excluded_fragment_ids", excluded)
        flag("materialize_deletions", self.materialize_deletions)
        part: object = self.materialize_deletions_threshold
        if not isinstance(part, int | float) or not 0 <= part <= 1:
            raise InvalidArgumentError(f"materialize_deletions_threshold must be between 0 and 1, got {part!r}")

    def _excluded(self) -> Sequence[int]:
        ids: Any = self.excluded_fragment_ids
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise WrongTypeError(f"excluded_fragment_ids must be a list of ids, got {ids!r}")
        return list(ids)


@dataclass
class CompactionMetrics(Displayed):
    """Counts of removed and added fragments and files."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0


@dataclass(frozen=True)
class CompactionTask:
    """Fragments to rewrite together; can run in another process."""

    fragments: tuple[Fragment, ...]
    read_version: int
    options: CompactionOptions = CompactionOptions()

    def execute(self, dataset: Any) -> RewriteResult:
        """Write the new files without a commit."""
        snapshot = dataset.snapshot
        if snapshot.version != self.read_version:
            snapshot = Snapshot.open(snapshot.store, snapshot.runtime, self.read_version)
        return rewrite(snapshot, self)

    def json(self) -> str:
        return json.dumps(
            {
                "fragments": _hex_strings(self.fragments),
                "read_version": self.read_version,
                "options": asdict(self.options),
            }
        )

    @staticmethod
    def from_json(json_string: str) -> CompactionTask:
        """Parse a task from JSON.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(json_string, "fragments", "read_version", "options")
        try:
            options = CompactionOptions(**parsed["options"])
        except TypeError as e:
            raise InvalidArgumentError(f"invalid compaction options: {e}") from e
        return CompactionTask(_fragments(parsed["fragments"]), parsed["read_version"], options)


@dataclass(frozen=True)
class RewriteResult:
    """The old and new fragments of a finished task."""

    original_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]
    read_version: int

    @property
    def metrics(self) -> CompactionMetrics:
        old, new = self.original_fragments, self.new_fragments
        return CompactionMetrics(
            len(old),
            len(new),
            sum(len(f.files) + (f.deletion_file is not None) for f in old),
            sum(len(f.files) for f in new),
        )

    def json(self) -> str:
        return json.dumps(
            {
                "original_fragments": _hex_strings(self.original_fragments),
                "new_fragments": _hex_strings(self.new_fragments),
                "read_version": self.read_version,
            }
        )

    @staticmethod
    def from_json(json_string: str) -> RewriteResult:
        """Parse a result from JSON.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(json_string, "original_fragments", "new_fragments", "read_version")
        old, new = _fragments(parsed["original_fragments"]), _fragments(parsed["new_fragments"])
        return RewriteResult(old, new, parsed["read_version"])


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction."""

    tasks: tuple[CompactionTask, ...]
    read_version: int

    def num_tasks(self) -> int:
        return len(self.tasks)

    def json(self) -> str:
        return json.dumps({"tasks": [task.json() for task in self.tasks], "read_version": self.read_version})

    @staticmethod
    def from_json(json_string: str) -> CompactionPlan:
        """Parse a plan from JSON.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(json_string, "tasks", "read_version")
        if not isinstance(parsed["tasks"], list):
            raise InvalidArgumentError("invalid compaction plan: tasks must be a list")
        return CompactionPlan(tuple(map(CompactionTask.from_json, parsed["tasks"])), parsed["read_version"])


def _hex_strings(fragments: Sequence[Fragment]) -> list[str]:
    return [fragment_message(f).SerializeToString(deterministic=True).hex() for f in fragments]


def _fragments(hex_strings: Sequence[str]) -> tuple[Fragment, ...]:
    try:
        return tuple(parse_fragment(pb.DataFragment.FromString(bytes.fromhex(h))) for h in hex_strings)
    except (ValueError, TypeError, DecodeError, CorruptLogError) as e:
        raise InvalidArgumentError(f"invalid fragment in a compaction task: {e}") from e


def _parsed(json_string: str, *keys: str) -> dict[str, Any]:
    try:
        parsed = json.loads(json_string)
    except (ValueError, TypeError) as e:
        raise InvalidArgumentError(f"invalid compaction JSON: {e}") from e
    if not isinstance(parsed, dict) or set(parsed) != set(keys):
        raise InvalidArgumentError("invalid compaction JSON", help=f"the keys must be {', '.join(keys)}")
    version = parsed["read_version"]
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidArgumentError(f"read_version must be a version number, got {version!r}")
    return parsed


# --- planning --------------------------------------------------------------------------------------------------------


def plan_compaction(snapshot: Snapshot, options: CompactionOptions | None = None) -> CompactionPlan:
    """Plan which runs of neighboring fragments to rewrite.

    The rows of a run keep their order and follow those of the untouched fragments.  A run is never a single small
    fragment, and does not mix indexed with unindexed fragments or fragments with different columns.  It ends as soon as
    it has the rows of a file, if those behind it also fill one.
    """
    options = options or CompactionOptions()
    tasks: list[CompactionTask] = []
    run: list[FragmentReader] = []
    coverage: object = None

    def close() -> None:
        nonlocal run
        tasks.extend(
            CompactionTask(tuple(r.fragment for r in readers), snapshot.version, options)
            for readers in _bins(run, options.target_rows_per_fragment)
            if len(readers) > 1 or _has_many_deleted(readers[0], options)
        )
        run = []

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
        small = reader.physical_rows < options.target_rows_per_fragment
        untouched = reader.fragment.id in options.excluded_fragment_ids or not columns
        if untouched or (not small and not _has_many_deleted(reader, options)):
            close()
            continue
        if covers != coverage:
            close()
        coverage = covers
        run.append(reader)
    close()
    return CompactionPlan(tuple(_within_budget(snapshot, tasks, options)), snapshot.version)


def _bins(run: Sequence[FragmentReader], least: int) -> Iterator[Sequence[FragmentReader]]:
    """Divide a run into parts of at least ``least`` rows."""
    rest = sum(reader.num_rows for reader in run)
    start = rows = 0
    for at, reader in enumerate(run):
        rows, rest = rows + reader.num_rows, rest - reader.num_rows
        if rows >= least and rest >= least:
            yield run[start : at + 1]
            start, rows = at + 1, 0
    if start < len(run):
        yield run[start:]


def _within_budget(
    snapshot: Snapshot, tasks: Sequence[CompactionTask], options: CompactionOptions
) -> Iterator[CompactionTask]:
    """Yield the first tasks that together do not exceed the input limits."""
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
    """Rewrite the live rows of a task's fragments."""
    readers = [snapshot.reader(f) for f in task.fragments]
    schema = present(snapshot, readers[0])
    # Read the stored form, so that null companions are copied like any column and missing columns stay missing.
    view = View(schema, folded=False, blob_bytes=True)
    rows = _sliced(scan(ScanPlan(view, view.schema), readers), task.options.batch_size)
    options = WriteOptions(max_rows_per_group=task.options.max_rows_per_group)
    if task.options.max_bytes_per_file is not None:
        options = replace(options, max_bytes_per_file=task.options.max_bytes_per_file)
    target = Target(schema, snapshot.manifest.storage_version, folded=False)
    new: list[Fragment] = []
    with discarded_on_failure(snapshot.store, new):
        for part in _parts(rows, _sizes(sum(r.num_rows for r in readers), task.options.target_rows_per_fragment)):
            new += write_fragments(snapshot.store, part, target, options, snapshot.runtime)
    done = tuple(new)
    return RewriteResult(task.fragments, _with_ids(done, readers) if _is_stable(snapshot) else done, task.read_version)


def _sliced(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        size = rows or max(batch.num_rows, 1)
        yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def _sizes(rows: int, least: int) -> list[int]:
    """The numbers of rows of new files: about equal, and none is less than ``least`` if there are several."""
    files = max(rows // least, 1)
    size, longer = divmod(rows, files)
    return [size + 1] * longer + [size] * (files - longer)


def _parts(batches: Iterator[pa.RecordBatch], sizes: Iterable[int]) -> Iterator[Iterator[pa.RecordBatch]]:
    """Divide batches by numbers of rows; each part must be read before the next one."""
    rest: pa.RecordBatch | None = None

    def part(size: int) -> Iterator[pa.RecordBatch]:
        nonlocal rest
        while size:
            batch = next(batches) if rest is None else rest
            rest = batch.slice(size) if batch.num_rows > size else None
            batch = batch.slice(0, size)
            size -= batch.num_rows
            yield batch

    return map(part, sizes)


def _is_stable(snapshot: Snapshot) -> bool:
    return snapshot.manifest.has_stable_row_ids


def _with_ids(new: tuple[Fragment, ...], readers: Sequence[FragmentReader]) -> tuple[Fragment, ...]:
    """Copy the stable row ids and row versions of live rows to the new fragments."""
    live = [reader.offsets_of_live(np.arange(reader.num_rows, dtype=np.int64)) for reader in readers]
    pairs = list(zip(readers, live, strict=True))
    ids = [reader.ids_of(offsets) for reader, offsets in pairs]
    created, updated = ([getattr(r, name)[offsets] for r, offsets in pairs] for name in ("created", "updated"))
    return carried(new, np.concatenate(ids), np.concatenate(created), np.concatenate(updated))


def present(snapshot: Snapshot, reader: FragmentReader) -> LanceSchema:
    """Return the columns stored in a fragment's files."""
    whole = snapshot.manifest.schema
    missing = {f.id for f in reader.missing(whole)}
    return LanceSchema(tuple(f for f in whole.fields if f.id not in missing), whole.metadata, whole.dictionaries)


def _moved_indices(snapshot: Snapshot, groups: Sequence[op.RewriteGroup]) -> tuple[op.RewrittenIndex, ...]:
    """Remap the indices to the new row ids; the new files have the live rows in their old order."""
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
    """Commit finished tasks: replace the old fragments by the new ones.

    Raises ``ConflictError`` if a concurrent commit changed the old fragments.
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
        manifest = snapshot.manifest if snapshot.version == read_version else None
        reserved = transaction.commit(snapshot.store, reserve, snapshot.runtime, base=manifest)
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
    """Plan, run and commit a compaction; no commit if there is nothing to do."""
    snapshot.manifest.check_writable(snapshot.store.uri)
    plan = plan_compaction(snapshot, options)
    results: list[RewriteResult] = []
    try:
        for task in plan.tasks:
            results.append(rewrite(snapshot, task))  # noqa: PERF401 - if a task fails, the finished ones are cleaned up
    except BaseException:
        discard(snapshot.store, [f for r in results for f in r.new_fragments])
        raise
    return commit_compaction(snapshot, results)
