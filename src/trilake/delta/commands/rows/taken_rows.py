"""The actions that take rows out of a table.

Deletion vectors where the table has those, a copy of the rest of the file otherwise
(:mod:`trilake.delta.commands.rows.copied_files`), and for a file without any row left its removal alone.

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
    """The actions that take rows away, and what they came to; see :func:`take_rows`.

    ``removed`` are the paths of the removed actions as the log spells them.  ``rows`` were taken, ``None`` where a file
    that went whole does not say how many it had, and ``copied`` were written again as they are.
    Of a file that only got another vector nothing is counted but the vector.
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
    #: Whether the change feed of the commit must come from change files alone, of which ``actions`` have those of the
    #: rows taken.
    change_files: bool = False

    @property
    def metrics(self) -> dict[str, int]:
        """Operation metrics as the reference implementation names them, without those that only a command knows."""
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
    """Make the actions that take rows of a snapshot away.  Files and vectors are written; nothing is committed.

    Parameters
    ----------
    touched: the rows to take by position of their file in ``snapshot.adds``: indexes in the file of rows that are not
        deleted yet.  A file of which all rows are taken is removed, and one of which none are is left alone.
    whole: positions of files whose every row is taken.
    job_id: part of the names of new files.
    change_type: what the change feed calls these rows.  Where the feed is on and the actions alone do not say what was
        taken, because a file is written again, the rows go into change files.  ``None`` where the command writes
        change files itself, or none are wanted.
    run: where to copy files.

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
        done = copy_files(log.store, snapshot, sources if feed else part, away, job_id=job_id, feed=feed, run=run)
        copies = {c.number: [*({"add": a} for a in c.adds), *({"cdc": a} for a in c.cdc)] for c in done}
        copied = sum(c.copied for c in done)
        outcome = replace(base, copies=copies, copied=copied, change_files=feed is not None)
    return _actions(adds.to_pylist(), numbers, outcome, runtime)


@dataclass(frozen=True)
class _Outcome:
    """What becomes of files by their number: the field of their new vector, or the actions that replace them."""

    vectors: Mapping[int, Mapping[str, Any]]
    copies: Mapping[int, Sequence[Mapping[str, Any]]]
    rows: int | None
    copied: int
    change_files: bool
    #: Physical rows of files whose statistics do not say them.
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
    left = [(f.number, rows, n) for f, (rows, n) in zip(files, vectors, strict=True) if n is None or len(rows) < n]
    fields = store_vectors(store, [rows for _, rows, _ in left], runtime.new_id)
    return replace(
        base,
        vectors={number: vector for (number, _, _), vector in zip(left, fields, strict=True)},
        records={number: n for number, _, n in left if n is not None},
    )


def physical_rows(store: Store, file: FileTask) -> int:
    """The rows that a Parquet file has, deleted ones included, by its footer.

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
    """The ``add`` of a file that loses rows to a vector: its statistics bound what is left, no longer tightly.

    ``records`` are the rows of the file where its statistics do not say them: with a vector, they must.
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
