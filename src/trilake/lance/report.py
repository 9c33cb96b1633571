"""Facts about a Lance dataset for reports, from its manifests and some page tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plural
from trilake.errors import TrilakeError
from trilake.lance.commands.compaction import CompactionOptions, plan_compaction
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.table import LanceTable
from trilake.lance.versions.versions import list_versions
from trilake.table.findings import spread
from trilake.table.report_facts import COMMITS, FILES, Bounds, ColumnBounds, Commits, Compaction, Facts, Storage, ranked

#: Maximum numbers of manifests to read, fragments to open, and columns to describe.
_VERSIONS, _FRAGMENTS, _COLUMNS = 200, 24, 24
#: Sample size per fragment in rows and bytes, to estimate the size of columns.
_ROWS, _BYTES = 256, 1 << 20


def lance_facts(table: LanceTable, now_ms: int) -> Facts:
    """Return the facts of a dataset at its version."""
    snapshot = table.snapshot
    fragments = snapshot.manifest.fragments
    files = _files(table)
    return Facts(
        unit="fragment",
        commands={
            "compact": "trilake.lance.dataset({uri!r}).optimize.compact_files()",
            "clean": "trilake.lance.dataset({uri!r}).cleanup_old_versions()",
        },
        format="lance",
        uri=table.uri,
        version=table.version,
        schema=table.schema,
        files=files,
        now_ms=now_ms,
        commits=_commits(table),
        bounds=_bounds(snapshot.readers),
        storage=_storage(snapshot.readers),
        compaction=_compaction(table, files),
        has_vectors=any(f.deletion_file is not None for f in fragments),
        indices=tuple(i.name for i in snapshot.manifest.indices),
    )


def _files(table: LanceTable) -> pa.Table:
    """Return the data files; the row count of a fragment is attributed to its first file."""
    files = table.files()
    readers = table.snapshot.readers
    counts = np.array([len(r.fragment.files) for r in readers], np.int64)
    first = (np.cumsum(counts) - counts)[counts > 0]
    deleted, rows = np.zeros(files.num_rows, np.int64), np.zeros(files.num_rows, np.int64)
    deleted[first] = np.array([r.num_deleted for r in readers], np.int64)[counts > 0]
    rows[first] = files["num_records"].to_numpy()[first]
    return pa.table([files["path"], files["size"], pa.array(rows), pa.array(deleted)], schema=FILES)


def _commits(table: LanceTable) -> Commits:
    past = table.history(_VERSIONS)
    total = sum(v <= table.version for v in list_versions(table.snapshot.store).versions)
    rows = pc.binary_join_element_wise(past["num_rows"].cast(pa.string()), "rows in the dataset", " ")
    nothing = pa.nulls(past.num_rows, pa.string())
    times = past["timestamp"].cast(COMMITS.field("timestamp").type, safe=False)
    commits = pa.table([past["version"], times, past["operation"], nothing, rows], schema=COMMITS)
    return Commits(commits, total - past.num_rows, total)


def _bounds(readers: tuple[FragmentReader, ...]) -> Bounds | None:
    """Return the bounds of columns by fragment, from row group statistics."""
    some = [readers[i] for i in spread(len(readers), _FRAGMENTS)]
    try:
        stats = [r.statistics() for r in some]
    except TrilakeError:
        return None  # reads and verify report the problem
    paths = list(dict.fromkeys(p for one in stats for p, s in one.items() if s.min is not None and len(p) == 1))
    columns: list[ColumnBounds] = []
    for path in paths[:_COLUMNS]:
        of = [one.get(path) for one in stats]
        ends = [(None, None) if s is None or s.min is None else (pc.min(s.min), pc.max(s.max)) for s in of]
        kind = next(low.type for low, _ in ends if low is not None)
        low = pa.chunked_array([[None if a is None else a.as_py() for a, _ in ends]], kind)
        high = pa.chunked_array([[None if b is None else b.as_py() for _, b in ends]], kind)
        column = ranked(path[0], low, high, pa.chunked_array([pa.nulls(len(ends), pa.bool_())]))
        columns += [] if column is None else [column]
    left_out = max(0, len(paths) - _COLUMNS)
    return Bounds(tuple(columns), len(readers), len(some), left_out, "fragment") if columns else None


def _storage(readers: tuple[FragmentReader, ...]) -> Storage | None:
    """Estimate the size of each column from a sample of rows, as the legacy format does not compress."""

    def measured(reader: FragmentReader) -> dict[str, float] | None:
        try:
            size = max(reader.stored_bytes(reader.schema), 1)
            rows = min(reader.physical_rows, _ROWS, max(1, _BYTES * reader.physical_rows // size))
            taken = pa.Table.from_batches(reader.read_range(reader.schema, 0, rows)) if rows else pa.table({})
        except TrilakeError:
            return None
        named = zip(taken.column_names, taken.columns, strict=True)
        return {name: column.nbytes * reader.physical_rows / rows for name, column in named}

    some = (readers[i] for i in spread(len(readers), _FRAGMENTS))
    storage = Storage.measured(len(readers), map(measured, some), "fragment")
    return storage if storage.columns else None


def _compaction(table: LanceTable, files: pa.Table) -> Compaction | None:
    options = CompactionOptions()
    try:
        plan = plan_compaction(table.snapshot, options)
    except TrilakeError:
        return None
    taken = [f for task in plan.tasks for f in task.entries]
    keys = pa.array([e.key for f in taken for e in f.files], pa.string())
    sizes = pc.sum(files.filter(pc.is_in(files["path"], keys))["size"]).as_py() or 0
    limit = options.target_rows_per_fragment
    into = sum(max(1, -(-sum(f.physical_rows for f in task.entries) // limit)) for task in plan.tasks)
    return Compaction(len(taken), into, sizes, plural(limit, "row"))
