"""Many processes change one table at the same time, including other implementations: nothing is lost.

    python -m tests.reliability processes --processes 32 --commits 100

Each process appends, deletes, updates and merges its own rows, which no other process changes, and also optimizes and
writes checkpoints, or compacts and indexes; after a conflict it retries.  So it knows its expected rows
at any time, and checks them::

    operation --conflict--> counted, once more
        |--reply lost--> counted; my rows, when no request can be on its way any more, tell whether it happened
        |--done--> version noted --> now and then: my rows, as I read them, are what they should be

At the end, the rows are those of all processes, the versions are contiguous, each acknowledged commit is the one of its
version, every commit was acknowledged, and ``verify`` finds nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import trilake
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ConflictError, TrilakeError, UnknownOutcomeError
from trilake.storage import open_store

#: Values of the rows of a process by id.
Rows = dict[int, str]
Options = Mapping[str, str]

SCHEMA = pa.schema([("id", pa.int64()), ("w", pa.int64()), ("v", pa.string())])
DELTA = {"append": 5, "delete": 2, "update": 2, "merge": 2, "optimize": 1, "checkpoint": 1}
LANCE = {"append": 5, "delete": 2, "update": 2, "merge": 2, "compact": 1, "index": 1}
#: Deltalake 1.6.6 commits a compaction of files that another one has removed, which duplicates rows (see the
#: test).
DELTALAKE = {k: v for k, v in DELTA.items() if k != "optimize"}
PYLANCE = {k: v for k, v in LANCE.items() if k != "index"}
#: Every n-th process runs the other implementation.
OTHERS = 4
_IDS = 1_000_000
#: Attempts of one operation before the process counts as starving.
_TRIES = 5000
#: Seconds after which a request without a reply has landed or never will.
_REQUEST_S = 20


class BrokenError(AssertionError):
    """A promise is broken."""


@dataclass
class Work:
    """Work of one process: its rows, the version of each commit by note, and the number of conflicts."""

    writer: int
    rows: Rows = field(default_factory=dict)
    versions: dict[str, int | None] = field(default_factory=dict)
    conflicts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    unknown: int = 0

    @property
    def join_condition(self) -> str:
        """Return the join condition of a merge."""
        return f"t.w = s.w and t.w = {self.writer} and t.id = s.id"

    def table(self, rows: Mapping[int, str]) -> pa.Table:
        """Return rows of this process as Arrow."""
        return pa.table({"id": list(rows), "w": [self.writer] * len(rows), "v": list(rows.values())}, schema=SCHEMA)


@dataclass(frozen=True)
class Change:
    """One operation: its note, the rows to write, the ids to delete or update, and their new value."""

    kind: str
    note: str
    rows: Rows
    ids: tuple[int, ...]
    text: str

    @property
    def where(self) -> str:
        """Return the predicate of deleted or updated rows as SQL."""
        return f"id in ({', '.join(map(str, self.ids))})"

    def after(self, rows: Rows) -> Rows:
        """Return the rows of the process after the operation."""
        match self.kind:
            case "append" | "merge":
                return {**rows, **self.rows}
            case "delete":
                return {i: v for i, v in rows.items() if i not in self.ids}
            case "update":
                return {i: self.text if i in self.ids else v for i, v in rows.items()}
        return rows


def change(rng: random.Random, work: Work, number: int, weights: Mapping[str, int]) -> Change:
    """Return the next operation of a process."""
    kind = rng.choices(list(weights), list(weights.values()))[0]
    if kind in ("delete", "update", "merge") and not work.rows:
        kind = "append"
    new = {work.writer * _IDS + number * 10 + i: f"a{number}" for i in range(rng.randint(1, 3))}
    mine = tuple(rng.sample(sorted(work.rows), min(2, len(work.rows))))
    if kind == "merge":
        new |= dict.fromkeys(mine, f"m{number}")
    return Change(kind, f"{work.writer}/{number}", new, mine, f"u{number}")


# --- implementations -------------------------------------------------------------------------------------------------


class TrilakeDelta:
    """A Delta table through trilake."""

    conflicts: tuple[type[Exception], ...] = (ConflictError,)
    weights = DELTA

    def __init__(self, uri: str, options: Options) -> None:
        self.uri, self.options = uri, options

    def tried_again(self, e: Exception) -> bool:
        """Whether a faster commit was the cause."""
        return isinstance(e, ConflictError)

    def do(self, work: Work, what: Change) -> int | None:
        """Do an operation; the version that it made."""
        store = open_store(self.uri, dict(self.options))
        table = ArrowDeltaTable(store, standard_engine(), user_metadata=what.note)
        match what.kind:
            case "append":
                how: Any = {"user_metadata": what.note, "storage_options": self.options}
                return trilake.write(work.table(what.rows), self.uri, mode="append", **how).version
            case "delete":
                return table.delete(what.where).version
            case "update":
                return table.update({"v": f"'{what.text}'"}, what.where).version
            case "merge":
                merge = table.merge(
                    work.table(what.rows), f"t.w = s.w and t.w = {work.writer} and t.id = s.id", "s", "t"
                )
                return merge.when_matched_update_all().when_not_matched_insert_all().execute().version
            case "optimize":
                done = table.optimize()
                return done.version if done.files_removed else None
        log = DeltaLog(store, standard_engine())
        write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
        return None

    def read(self, writer: int) -> Rows:
        """The rows of a process as the table has them now."""
        table = trilake.open(self.uri, storage_options=self.options).to_arrow(filter=f"w = {writer}")
        return _rows(table)


class Deltalake:
    """The table through deltalake."""

    weights = DELTALAKE

    def __init__(self, uri: str, options: Options) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        self.uri, self.options = uri, dict(options)
        self.conflicts = (CommitFailedError, DeltaError)

    def tried_again(self, e: Exception) -> bool:
        """Whether a concurrent process was the cause: a faster commit, or a checkpoint replaced by deltalake."""
        return type(e).__name__ == "CommitFailedError" or "Requested range was invalid" in str(e)

    def do(self, work: Work, what: Change) -> int | None:
        """Do an operation."""
        import deltalake

        note = deltalake.CommitProperties(custom_metadata={"userMetadata": what.note})
        table = deltalake.DeltaTable(self.uri, storage_options=self.options)
        match what.kind:
            case "append":
                deltalake.write_deltalake(table, work.table(what.rows), mode="append", commit_properties=note)
            case "delete":
                table.delete(what.where, commit_properties=note)
            case "update":
                table.update(new_values={"v": what.text}, predicate=what.where, commit_properties=note)
            case "merge":
                merge = table.merge(
                    work.table(what.rows),
                    work.join_condition,
                    source_alias="s",
                    target_alias="t",
                    commit_properties=note,
                )
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case "checkpoint":
                table.create_checkpoint()
        return None

    def read(self, writer: int) -> Rows:
        """The rows of a process as the table has them now."""
        import deltalake

        table = deltalake.DeltaTable(self.uri, storage_options=self.options)
        return _rows(table.to_pyarrow_table(filters=[("w", "=", writer)]))


class TrilakeLance:
    """A Lance dataset through trilake."""

    conflicts: tuple[type[Exception], ...] = (ConflictError,)
    weights = LANCE

    def __init__(self, uri: str, options: Options) -> None:
        self.uri, self.options = uri, options

    def tried_again(self, e: Exception) -> bool:
        """Whether a faster commit was the cause."""
        return isinstance(e, ConflictError)

    def _open(self) -> Any:
        from trilake import lance

        return lance.dataset(self.uri, storage_options=dict(self.options))

    def do(self, work: Work, what: Change) -> int | None:
        """Do an operation; the version that it made."""
        dataset = self._open()
        match what.kind:
            case "append":
                from trilake import lance

                rows, options = work.table(what.rows), dict(self.options)
                return int(lance.write_dataset(rows, self.uri, mode="append", storage_options=options).version)
            case "delete":
                dataset.delete(what.where)
            case "update":
                dataset.update({"v": f"'{what.text}'"}, what.where)
            case "merge":
                merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(work.table(what.rows))
            case "compact":
                dataset.optimize.compact_files(target_rows_per_fragment=64)
                return None
            case "index":
                dataset.create_scalar_index("v", "BTREE", replace=True)
                return None
        return int(dataset.version)

    def read(self, writer: int) -> Rows:
        """The rows of a process as the dataset has them now."""
        return _rows(self._open().to_table(filter=f"w = {writer}"))


class Pylance:
    """The dataset through pylance."""

    weights = PYLANCE

    def __init__(self, uri: str, options: Options) -> None:
        self.uri, self.options = uri, dict(options)
        self.conflicts = (OSError, RuntimeError)

    def tried_again(self, e: Exception) -> bool:
        """Whether a faster commit was the cause."""
        return "conflict" in str(e).lower() or "concurrent writers" in str(e)  # after retries of 30 seconds

    def _open(self) -> Any:
        import lance

        return lance.dataset(self.uri, storage_options=self.options or None)

    def do(self, work: Work, what: Change) -> int | None:
        """Do an operation."""
        dataset = self._open()
        match what.kind:
            case "append":
                dataset.insert(work.table(what.rows), mode="append")
            case "delete":
                dataset.delete(what.where)
            case "update":
                dataset.update({"v": f"'{what.text}'"}, where=what.where)
            case "merge":
                merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(work.table(what.rows))
            case "compact":
                dataset.optimize.compact_files(target_rows_per_fragment=64)
        return None

    def read(self, writer: int) -> Rows:
        """The rows of a process as the dataset has them now."""
        return _rows(self._open().to_table(filter=f"w = {writer}"))


Implementation = TrilakeDelta | Deltalake | TrilakeLance | Pylance
IMPLEMENTATIONS: Mapping[str, tuple[Callable[..., Implementation], Callable[..., Implementation]]] = {
    "delta": (TrilakeDelta, Deltalake),
    "lance": (TrilakeLance, Pylance),
}


def _rows(table: pa.Table) -> Rows:
    rows = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    if len(rows) < table.num_rows:
        raise BrokenError("a row is there twice")
    return rows


# --- a process -------------------------------------------------------------------------------------------------------


def work_on(uri: str, options: Options, format: str, writer: int, count: int, seed: int, out: str) -> None:
    """Run ``count`` operations and record them in a file."""
    mine, other = IMPLEMENTATIONS[format]
    table = (other if writer % OTHERS == 1 else mine)(uri, options)
    rng, work = random.Random(f"{seed}/{writer}"), Work(writer)
    for number in range(count):
        what = change(rng, work, number, table.weights)
        work.versions[what.note] = _until_done(table, work, what, rng)
        work.kinds[what.kind] += 1
        work.rows = what.after(work.rows)
        if rng.random() < 0.1 or number == count - 1:
            seen = _read(table, writer)
            if seen != work.rows:
                raise BrokenError(f"writer {writer} after {what}: reads {seen}, has written {work.rows}")
    Path(out).write_text(json.dumps(work.__dict__))


def _until_done(table: Implementation, work: Work, what: Change, rng: random.Random) -> int | None:
    for attempt in range(_TRIES):
        try:
            return table.do(work, what)
        except table.conflicts as e:
            if not table.tried_again(e):
                raise
            work.conflicts[what.kind] += 1
            time.sleep(rng.random() * min(10.0, 0.01 * 2 ** min(attempt, 10)))
        except UnknownOutcomeError:
            work.unknown += 1
            time.sleep(_REQUEST_S)
            if what.after(work.rows) == _read(table, work.writer):
                return None
    raise BrokenError(f"writer {work.writer} has tried {_TRIES} times: {what}")


def _read(table: Implementation, writer: int) -> Rows:
    for _ in range(_TRIES):
        try:
            return table.read(writer)
        except table.conflicts as e:
            if isinstance(e, TrilakeError) or not table.tried_again(e):
                raise
            time.sleep(0.01)
    raise BrokenError(f"writer {writer} cannot read its rows")


# --- the whole -------------------------------------------------------------------------------------------------------


def run_processes(
    uri: str, options: Options, format: str, processes: int, commits: int, seed: int, folder: Path
) -> dict[str, Any]:
    """Run processes with some operations each; return counts, or raise ``BrokenError``."""
    trilake.write(SCHEMA.empty_table(), uri, format=format, storage_options=options)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.reliability.processes"])
    outs = [folder / f"{w}.json" for w in range(processes)]
    running = [
        context.Process(target=work_on, args=(uri, dict(options), format, w, commits, seed, str(out)))
        for w, out in enumerate(outs)
    ]
    started = time.monotonic()
    for process in running:
        process.start()
    for process in running:
        process.join()
    seconds = time.monotonic() - started
    codes = [p.exitcode for p in running]
    if any(codes):
        raise BrokenError(f"processes ended with {codes}; seed {seed}")
    works = [Work(**json.loads(out.read_text())) for out in outs]
    _check_rows(uri, options, format, works)
    count = {"delta": _check_delta, "lance": _check_lance}[format](uri, options, works)
    done = sum(sum(w.kinds.values()) for w in works)
    conflicts = sum(sum(w.conflicts.values()) for w in works)
    return {
        "format": format,
        "store": uri.partition("://")[0] if "://" in uri else "local",
        "seed": seed,
        "processes": processes,
        "operations": done,
        "versions": count,
        "conflicts": conflicts,
        "replies_lost": sum(w.unknown for w in works),
        "conflict_rate": round(conflicts / (conflicts + done), 3),
        "seconds": round(seconds, 1),
        "operations_per_second": round(done / seconds, 1),
    }


def _check_rows(uri: str, options: Options, format: str, works: list[Work]) -> None:
    """Check that the table has every acknowledged row once and no other row."""
    expected = {int(i): v for w in works for i, v in w.rows.items()}
    seen = _rows(trilake.open(uri, format=format, storage_options=options).to_arrow())
    if seen != expected:
        lost = sorted(expected.keys() - seen.keys())
        extra = sorted(seen.keys() - expected.keys())
        other = sorted(i for i in seen.keys() & expected.keys() if seen[i] != expected[i])
        raise BrokenError(f"rows lost: {lost}, too many: {extra}, other: {other}")
    findings = trilake.verify(uri, format=format, storage_options=options)
    if findings.errors or findings.skipped:
        raise BrokenError(f"{findings.findings} {findings.skipped}")


def _check_delta(uri: str, options: Options, works: list[Work]) -> int:
    log = DeltaLog(open_store(uri, dict(options)), standard_engine())
    commits = log.commits()
    numbers = [v for v, _ in commits]
    if numbers != list(range(len(numbers))):
        raise BrokenError(f"the log has the versions {numbers}")
    infos = log.parse(commits).of("commitInfo")
    notes = {v: str(info["userMetadata"]) for v, info in infos if info.get("userMetadata")}
    twice = [n for n, count in Counter(notes.values()).items() if count > 1]
    untold = set(notes.values()) - {note for w in works for note in w.versions}
    if twice or untold:
        raise BrokenError(f"commits that are there twice: {twice}, that no one was told of: {untold}")
    if [v for v in numbers if v not in notes] != [0]:
        raise BrokenError(f"commits of no one: {[v for v in numbers if v not in notes]}")
    for note, version in ((n, v) for w in works for n, v in w.versions.items() if v is not None):
        if notes.get(version) != note:
            raise BrokenError(f"operation {note} was told version {version}, which is of {notes.get(version)}")
    tokens = [info["txnId"] for _, info in infos if info.get("txnId")]
    if len(set(tokens)) != len(tokens):
        raise BrokenError("two commits have one token")
    return len(numbers)


def _check_lance(uri: str, options: Options, works: list[Work]) -> int:
    from trilake.lance.versions.versions import list_versions

    versions = list(list_versions(open_store(uri, dict(options))).versions)
    if versions != list(range(1, versions[-1] + 1)):
        raise BrokenError(f"the dataset has the versions {versions}")
    acknowledged = Counter(v for w in works for v in w.versions.values() if v is not None)
    if acknowledged and (max(acknowledged.values()) > 1 or max(acknowledged) > versions[-1]):
        raise BrokenError(f"versions that two were told of: {[v for v, n in acknowledged.items() if n > 1]}")
    return len(versions)
