"""The actions that remove rows from a table.

Deletion vectors where the table has them, otherwise a copy of the rest of the file
(:mod:`trilake.delta.commands.rows.copied_files`); files without remaining rows are just removed.

Protocol: *Deletion Vectors*, *Add CDC File*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from trilake.common.runtime import Runtime
from trilake.delta.commands.rows.copied_files import copy_files
from trilake.delta.commands.rows.row_changes import (
    Runner,
    TouchedFile,
    live_rows,
    records_changes,
    run_here,
    touched_files,
    uses_vectors,
)
from trilake.delta.commit.transaction import remove_action
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.deletion_vectors import store_vectors
from trilake.delta.scan.read import locate
from trilake.delta.scan.scan import FileTask
from trilake.errors import MissingFileError, ObjectNotFoundError
from trilake.parquet.files import DAMAGE, unreadable
from trilake.storage.base import Store


@dataclass(frozen=True)
class TakenRows:
    """The actions that remove rows, and their totals; see :func:`take_rows`.

    ``removed`` are the paths of removed files as the log spells them.  ``rows`` were removed, ``None`` where a
    removed file does not state its number of rows, and ``copied`` were copied.  A file that only got another vector
    only counts as a vector.
    """

    actions: tuple[Mapping[str, Any], ...] = ()
    removed: frozenset[str] = frozenset()
    rows: int | None = 0
    copied: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0
    vectors_removed: int = 0
    #: Whether the change feed must be read from change files alone, of which ``actions`` have those of the removed
    #: rows.
    change_files: bool = False

    @property
    def metrics(self) -> dict[str, int]:
        """Operation metrics under delta-spark's names."""
        changes = [a["cdc"] for a in self.actions if "cdc" in a]
        return {
            "numRemovedFiles": self.files_removed,
            "numAddedFiles": self.files_added,
            "numCopiedRows": self.copied,
            "numDeletionVectorsAdded": self.vectors_added,
            "numDeletionVectorsUpdated": self.vectors_updated,
            "numDeletionVectorsRemoved": self.vectors_removed,
            "numAddedChangeFiles": len(changes),
            "numRemovedBytes": self.bytes_removed,
            "numAddedBytes": self.bytes_added,
        }


def take_rows(
    log: DeltaLog,
    snapshot: Snapshot,
    touched: Mapping[int, BitMap64],
    *,
    whole: Iterable[int] = (),
    job_id: str,
    change_type: str | None = None,
    runtime: Runtime,
    run: Runner = run_here,
) -> TakenRows:
    """Create the actions that remove rows of a snapshot.  Writes files and vectors, but commits nothing.

    Parameters
    ----------
    touched: the rows to remove by position of their file in ``snapshot.adds``: indexes in the file of undeleted rows.
        A file whose every row is removed is removed; one without such rows stays.
    whole: positions of files whose every row is removed.
    job_id: part of the names of new files.
    change_type: the change feed's type of these rows.  Where the feed is on and a file is rewritten, so that the
        actions do not show which rows were removed, the rows go into change files.  ``None`` where the command writes
        change files itself, or none are needed.
    run: runs the copying of files.

    Raises ``MissingFileError``, ``CorruptFileError`` or ``DeletionVectorError`` for a file that cannot be read.
    """
    every = set(whole)
    numbers = sorted(every | {n for n, rows in touched.items() if len(rows)})
    if not numbers:
        return TakenRows()
    adds = snapshot.adds.take(pa.array(numbers, pa.int64()))
    live = dict(zip(numbers, live_rows(adds).to_pylist(), strict=True))
    taken = {n: touched[n] for n in numbers if n not in every}
    every |= {n for n, rows in taken.items() if live[n] is not None and len(rows) >= live[n]}
    sources = touched_files(snapshot, numbers)
    part = [s for s in sources if s.number not in every]
    counts = [live[n] if n in every else len(taken[n]) for n in numbers]
    base = _Outcome({}, {}, None if None in counts else sum(counts), 0, False)
    if uses_vectors(snapshot):
        unknown = {s.number for s in part if live[s.number] is None}
        outcome = _by_vectors(log.store, part, taken, unknown, base, runtime)
    else:
        feed = change_type if part and records_changes(snapshot) else None
        away = {n: rows for n, rows in taken.items() if n not in every}
        results = copy_files(log.store, snapshot, sources if feed else part, away, job_id=job_id, feed=feed, run=run)
        copies = {c.number: [*({"add": a} for a in c.adds), *({"cdc": a} for a in c.cdc)] for c in results}
        copied = sum(c.copied for c in results)
        outcome = replace(base, copies=copies, copied=copied, change_files=feed is not None)
    return _actions(adds.to_pylist(), numbers, outcome, runtime)


@dataclass(frozen=True)
class _Outcome:
    """The results by file number: the field of the new vector, or the actions that replace the file."""

    vectors: Mapping[int, Mapping[str, Any]]
    copies: Mapping[int, Sequence[Mapping[str, Any]]]
    rows: int | None
    copied: int
    change_files: bool
    #: Physical rows of files whose statistics lack them.
    records: Mapping[int, int] = field(default_factory=dict)


def _actions(
    adds: Sequence[Mapping[str, Any]], numbers: Sequence[int], outcome: _Outcome, runtime: Runtime
) -> TakenRows:
    now = runtime.clock_ms()
    actions: list[Mapping[str, Any]] = []
    removed = [a for n, a in zip(numbers, adds, strict=True) if n not in outcome.vectors]
    for number, add in zip(numbers, adds, strict=True):
        actions.append(remove_action(add, now))
        if number in outcome.vectors:
            vector = outcome.vectors[number]
            actions.append({"add": add_with_vector(add, vector, outcome.records.get(number))})
        actions += outcome.copies.get(number, ())
    new = [a["add"] for copies in outcome.copies.values() for a in copies if "add" in a]
    with_vector = [n for n, a in zip(numbers, adds, strict=True) if a.get("deletionVector") is not None]
    return TakenRows(
        tuple(actions),
        frozenset(a["path"] for a in adds),
        outcome.rows,
        outcome.copied,
        files_added=len(new),
        files_removed=len(removed),
        bytes_added=sum(a["size"] for a in new),
        bytes_removed=sum(a["size"] or 0 for a in removed),
        vectors_added=len(outcome.vectors),
        vectors_updated=sum(n in outcome.vectors for n in with_vector),
        vectors_removed=len(with_vector),
        change_files=outcome.change_files,
    )


def _by_vectors(
    store: Store,
    files: Sequence[TouchedFile],
    taken: Mapping[int, BitMap64],
    unknown: set[int],
    base: _Outcome,
    runtime: Runtime,
) -> _Outcome:
    def joined(source: TouchedFile) -> tuple[BitMap64, int | None]:
        rows = taken[source.number]
        if source.file.vector is not None:
            rows = rows | source.file.vector.load(store)
        return rows, physical_rows(store, source.file) if source.number in unknown else None

    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(joined, files))
    remaining = [(f.number, rows, n) for f, (rows, n) in zip(files, vectors, strict=True) if n is None or len(rows) < n]
    fields = store_vectors(store, [rows for _, rows, _ in remaining], runtime.new_id)
    return replace(
        base,
        vectors={number: vector for (number, _, _), vector in zip(remaining, fields, strict=True)},
        records={number: n for number, _, n in remaining if n is not None},
    )


def physical_rows(store: Store, file: FileTask) -> int:
    """The number of rows in a Parquet file, including deleted ones, by its footer.

    Raises ``MissingFileError`` or ``CorruptFileError``.
    """
    place, key = locate(store, file.path)
    try:
        with place.open_input(key) as source:
            return int(pq.read_metadata(source).num_rows)
    except ObjectNotFoundError as e:
        raise MissingFileError("a data file of the table is missing", file=f"{place.uri}/{key}") from e
    except DAMAGE as e:
        raise unreadable(e, file=f"{place.uri}/{key}") from e


def add_with_vector(add: Mapping[str, Any], vector: Mapping[str, Any], records: int | None = None) -> dict[str, Any]:
    """The ``add`` of a file with a new vector: its bounds are no longer tight.

    ``records`` are the rows of the file where its statistics lack them: a file with a vector must state them.
    """
    out = {k: v for k, v in add.items() if v is not None}
    for name in ("partitionValues", "tags"):
        if name in out:
            out[name] = dict(out[name])
    stats = orjson.loads(out["stats"]) if out.get("stats") else {}
    if records is not None:
        stats["numRecords"] = records
    if stats:
        out["stats"] = orjson.dumps({**stats, "tightBounds": False}).decode()
    return {**out, "dataChange": True, "deletionVector": dict(vector)}
