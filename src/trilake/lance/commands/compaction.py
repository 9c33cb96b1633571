"""Compaction: rewrite small fragments, and those with many deleted rows, as fewer and larger ones.

Like pylance, compaction makes two commits: the first reserves ids for the new fragments, so that their row ids are
fixed and indices can be remapped; the second replaces the old fragments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np

from trilake.common.arguments import count, flag
from trilake.common.display import Displayed
from trilake.errors import CorruptLogError, InvalidArgumentError
from trilake.lance.commands import indices
from trilake.lance.commands.fragment_writer import (
    Target,
    WriteOptions,
    discarded_on_failure,
    in_parts,
    write_fragments,
)
from trilake.lance.commands.open_dataset import OpenDataset
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
from trilake.lance.versions.fragment_metadata import FragmentMetadata
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
        ids: object = self.excluded_fragment_ids
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise WrongTypeError(f"excluded_fragment_ids must be a list of ids, got {ids!r}")
        excluded = tuple(count("excluded_fragment_ids", id, other_type=WrongTypeError) for id in ids)
        object.__setattr__(self, "excluded_fragment_ids", excluded)
        flag("materialize_deletions", self.materialize_deletions)
        part: object = self.materialize_deletions_threshold
        if not isinstance(part, int | float) or not 0 <= part <= 1:
            raise InvalidArgumentError(f"materialize_deletions_threshold must be between 0 and 1, got {part!r}")


@dataclass
class CompactionMetrics(Displayed):
    """Counts of removed and added fragments and files."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0


@dataclass(frozen=True, repr=False)
class CompactionTask:
    """Fragments to rewrite together; can be pickled or serialized to JSON, to run in another process."""

    entries: tuple[Fragment, ...]
    read_version: int
    options: CompactionOptions = CompactionOptions()

    @property
    def fragments(self) -> list[FragmentMetadata]:
        return _metadata(self.entries)

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the new files without a commit."""
        return rewrite(_at(dataset.snapshot, self.read_version), self)

    def json(self) -> str:
        parts = {"read_version": self.read_version, "options": asdict(self.options)}
        return json.dumps({"fragments": _hex_strings(self.entries), **parts})

    @staticmethod
    def from_json(json_string: str) -> CompactionTask:
        """Parse a task from JSON.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(json_string, "fragments", "read_version", "options")
        try:
            options = CompactionOptions(**parsed["options"])
        except TypeError as e:
            raise InvalidArgumentError(f"invalid compaction options: {e}") from e
        return CompactionTask(_fragments(parsed["fragments"]), parsed["read_version"], options)

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"


@dataclass(frozen=True, repr=False)
class RewriteResult:
    """The old and new fragments of a finished task; can be pickled or serialized to JSON."""

    old_entries: tuple[Fragment, ...]
    new_entries: tuple[Fragment, ...]
    read_version: int

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """Fragments that were rewritten."""
        return _metadata(self.old_entries)

    #: Alias of :attr:`original_fragments`.
    old_fragments = original_fragments

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        return _metadata(self.new_entries)

    @property
    def metrics(self) -> CompactionMetrics:
        old, new = self.old_entries, self.new_entries
        files_removed = sum(len(f.files) + (f.deletion_file is not None) for f in old)
        return CompactionMetrics(len(old), len(new), files_removed, sum(len(f.files) for f in new))

    def json(self) -> str:
        old, new = _hex_strings(self.old_entries), _hex_strings(self.new_entries)
        return json.dumps({"original_fragments": old, "new_fragments": new, "read_version": self.read_version})

    @staticmethod
    def from_json(json_string: str) -> RewriteResult:
        """Parse a result from JSON.  Raises ``InvalidArgumentError``."""
        parsed = _parsed(json_string, "original_fragments", "new_fragments", "read_version")
        old, new = _fragments(parsed["original_fragments"]), _fragments(parsed["new_fragments"])
        return RewriteResult(old, new, parsed["read_version"])

    def __repr__(self) -> str:
        new, old = self.new_fragments, self.old_fragments
        return f"RewriteResult(read_version={self.read_version}, new_fragments={new}, old_fragments={old})"


@dataclass(frozen=True, repr=False)
class CompactionPlan:
    """The tasks of a compaction; can be pickled or serialized to JSON."""

    tasks: list[CompactionTask]
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
        return CompactionPlan(list(map(CompactionTask.from_json, parsed["tasks"])), parsed["read_version"])

    def __repr__(self) -> str:
        return f"CompactionPlan(read_version={self.read_version}, tasks=<{self.num_tasks()} compaction tasks>)"


def _metadata(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return [FragmentMetadata.of(f) for f in fragments]


def _at(snapshot: Snapshot, version: int) -> Snapshot:
    if snapshot.version == version:
        return snapshot
    return Snapshot.open(snapshot.store, snapshot.runtime, version)


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
        columns, id = present(snapshot, reader).field_ids, reader.fragment.id
        covers = columns, sorted(i.uuid for i in snapshot.manifest.indices if id in (i.fragment_bitmap or ()))
        small = reader.physical_rows < options.target_rows_per_fragment
        untouched = id in options.excluded_fragment_ids or not columns
        if untouched or (not small and not _has_many_deleted(reader, options)):
            close()
            continue
        if covers != coverage:
            close()
        coverage = covers
        run.append(reader)
    close()
    return CompactionPlan(list(_within_budget(snapshot, tasks, options)), snapshot.version)


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
        readers = [snapshot.reader(f) for f in task.entries]
        files = [f for fragment in task.entries for f in fragment.files]
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
    readers = [snapshot.reader(f) for f in task.entries]
    schema = present(snapshot, readers[0])
    # Read the stored form, so that null companions are copied like any column and missing columns stay missing.
    view = View(schema, folded=False, blob_bytes=True)
    rows = scan(ScanPlan(view, view.schema, batch_size=task.options.batch_size), readers)
    options = WriteOptions(max_rows_per_group=task.options.max_rows_per_group)
    if task.options.max_bytes_per_file is not None:
        options = replace(options, max_bytes_per_file=task.options.max_bytes_per_file)
    target = Target(schema, snapshot.manifest.storage_version, folded=False)
    new: list[Fragment] = []
    with discarded_on_failure(snapshot.store, new):
        for part in in_parts(rows, _sizes(sum(r.num_rows for r in readers), task.options.target_rows_per_fragment)):
            new += write_fragments(snapshot.store, part, target, options, snapshot.runtime)
    rows_of = ((reader.fragment.id, reader.live_offsets) for reader in readers)
    return RewriteResult(task.entries, snapshot.moved(new, rows_of, unchanged=True), task.read_version)


def _sizes(rows: int, least: int) -> list[int]:
    """The numbers of rows of new files: about equal, and none is less than ``least`` if there are several."""
    files = max(rows // least, 1)
    size, longer = divmod(rows, files)
    return [size + 1] * longer + [size] * (files - longer)


def present(snapshot: Snapshot, reader: FragmentReader) -> LanceSchema:
    """Return the columns stored in a fragment's files."""
    whole = snapshot.manifest.schema
    missing = {f.id for f in reader.missing(whole)}
    return LanceSchema(tuple(f for f in whole.fields if f.id not in missing), whole.metadata, whole.dictionaries)


def _moved_indices(snapshot: Snapshot, groups: Sequence[op.RewriteGroup]) -> tuple[op.RewrittenIndex, ...]:
    """Remap the indices to the new row ids; the new files have the live rows in their old order."""
    if not any(i.by_address or not snapshot.manifest.has_stable_row_ids for i in snapshot.manifest.indices):
        return ()
    before, after = [], []
    for group in groups:
        before += [addresses(f.id, snapshot.reader(f).live_offsets) for f in group.old_fragments]
        after += [addresses(f.id, np.arange(f.physical_rows, dtype=np.int64)) for f in group.new_fragments]
    rewritten = {f.id for group in groups for f in group.old_fragments}
    return indices.remap(snapshot, np.concatenate(before), np.concatenate(after), rewritten)


def commit_compaction(snapshot: Snapshot, results: Sequence[RewriteResult]) -> tuple[Snapshot, CompactionMetrics]:
    """Commit finished tasks: replace the old fragments with the new ones.

    Raises ``ConflictError`` if a concurrent commit changed the old fragments.
    """
    results = [result for result in results if result.old_entries]
    if not results:
        return snapshot, CompactionMetrics()
    metrics = CompactionMetrics(*map(sum, zip(*(astuple(result.metrics) for result in results))))
    read_version = min(result.read_version for result in results)
    written = [f for result in results for f in result.new_entries]
    with discarded_on_failure(snapshot.store, written):
        reserve = transaction.begin(read_version, op.ReserveFragments(len(written)), snapshot.runtime)
        manifest = snapshot.manifest if snapshot.version == read_version else None
        reserved = transaction.commit(snapshot.store, reserve, snapshot.runtime, base=manifest)
        next_id = reserved.max_fragment_id - len(written) + 1
        groups = []
        for result in results:
            new = tuple(replace(f, id=next_id + i) for i, f in enumerate(result.new_entries))
            next_id += len(new)
            groups.append(op.RewriteGroup(result.old_entries, new))
        moved = _moved_indices(_at(snapshot, read_version), groups)
        return snapshot.commit(op.Rewrite(tuple(groups), moved), read_version), metrics


def compact(snapshot: Snapshot, options: CompactionOptions | None = None) -> tuple[Snapshot, CompactionMetrics]:
    """Plan, run and commit a compaction; no commit if there is nothing to do."""
    snapshot.manifest.check_writable(snapshot.store.uri)
    plan = plan_compaction(snapshot, options)
    results: list[RewriteResult] = []
    written: list[Fragment] = []
    with discarded_on_failure(snapshot.store, written):
        for task in plan.tasks:
            results.append(rewrite(snapshot, task))
            written += results[-1].new_entries
    return commit_compaction(snapshot, results)
