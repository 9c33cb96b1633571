"""Kills with SIGKILL: acknowledged operations apply once, all others completely or not at all.

    python -m tests.reliability kills --kills 500 --seed 1

A victim (:mod:`tests.reliability.victims`) changes a table.  It is killed in the middle of an operation, at a time
chosen by the seed; then the table is checked as its successor sees it, and the next victim continues::

    begin 7 --> wait a part of what such an operation takes --> SIGKILL
      --> open, read: the rows before operation 7, or those after it
      --> log without a gap, every acknowledged version there, nothing for ``verify`` to find
      --> the files grow two days older --> next victim

At the end of a table a vacuum removes the leftovers: no ``.trilake-*.tmp`` stays.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import trilake
from tests.reliability.victims import MIXES, begin, op_of, run_stream
from tests.simulation.delta.delta_rows import model
from tests.simulation.model import CHANGES, Rows, difference, effect
from tests.simulation.plan import Op
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import TrilakeError
from trilake.lance.cleanup import cleanup, files_of
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions.versions import list_versions
from trilake.storage import open_store
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import list_files

ROOT = Path(__file__).resolve().parent.parent.parent
#: Kills per table; then its leftovers are removed, and another table begins.
PER_TABLE = 25
#: Allowed findings of ``verify``: a manifest is copied after its commit, by the next commit at the latest.
LEFTOVERS = frozenset({"lance.latest-differs"})
_DAYS_NS = 2 * 24 * 3600 * 10**9
#: Kinds of operations that change rows, in addition to those of the simulation.
_CHANGES = CHANGES | {"once"}


class BrokenError(AssertionError):
    """A promise is broken; the message tells how to reproduce it."""


@dataclass
class Result:
    """Counts: kills by the operation they hit; acknowledged operations; changes that had landed or were lost;
    kills between two operations; unfinished files."""

    kills: int = 0
    operations: int = 0
    landed: int = 0
    lost: int = 0
    between: int = 0
    leftovers: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self.__dict__, "kinds": dict(sorted(self.kinds.items()))}


class Template:
    """The process from which victims are forked."""

    def __init__(self, errors: IO[bytes]) -> None:
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.victims"],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        self.victim: int | None = None

    def line(self) -> list[str]:
        """Return its next line as words."""
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if not words:
            raise BrokenError("the template ended")
        if words[0] == "ended":
            self.victim = None
        return words

    def fork(self, **given: Any) -> int:
        """Fork a new victim."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        self.victim = int(self.line()[1])
        return self.victim

    def end(self) -> None:
        """Stop the template, and a victim that still runs because of a failure."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        if self.victim is not None:
            with suppress(ProcessLookupError):
                os.kill(self.victim, signal.SIGKILL)
        self.process.stdout.read()
        self.process.wait()


class TableUnderFire:
    """One table: its expected rows, and the victims that change it."""

    def __init__(self, mix: str, folder: Path, seed: int, result: Result) -> None:
        self.mix, self.folder, self.seed, self.result = mix, folder, seed, result
        self.rng = random.Random(f"{mix}/{seed}")
        self.uri = str(folder / "t")
        self.rows: Rows = {}
        self.appended: Rows = {}
        self.next = 1
        self.versions: dict[int, int] = {}
        self.took: dict[str, float] = {}
        begin(mix, self.uri)

    # --- killing -----------------------------------------------------------------------------------------------------

    def kill(self, template: Template) -> None:
        """Run a victim for some operations, kill it, and check the table."""
        operations = self.rng.randint(1, 5)
        pid = template.fork(mix=self.mix, folder=str(self.folder), seed=self.seed, start=self.next)
        pending: int | None = None
        since = time.monotonic()
        while True:
            word, *numbers = template.line()
            if word == "begin":
                pending, since = int(numbers[0]), time.monotonic()
                operations -= 1
                if operations == 0:
                    kind = op_of(self.mix, self.seed, pending).kind
                    part = self.rng.choice([self.rng.uniform(0, 1.3), self.rng.uniform(0.7, 1.3)])
                    time.sleep(part * self.took.get(kind, 0.05))
                    os.kill(pid, signal.SIGKILL)
            elif word == "done":
                assert pending is not None
                self._acknowledged(pending, numbers[1], time.monotonic() - since)
                pending = None
            elif word == "ended":
                if numbers != ["-9"]:
                    raise BrokenError(f"{self._where(pending)}: the victim ended with {numbers[0]}: see its errors")
                break
        self.result.kills += 1
        try:
            self._look(pending)
        except TrilakeError as e:
            raise BrokenError(f"{self._where(pending)}: a successor cannot read it: {e}") from e
        self._days_pass()

    def _acknowledged(self, number: int, version: str, took: float) -> None:
        op = op_of(self.mix, self.seed, number)
        self.took[op.kind] = took
        after = self._after(op)
        if version != "None" and after != self.rows:
            self.versions[number] = int(version)
        self.rows = after
        self.result.operations += 1
        self.next = number + 1

    def _after(self, op: Op) -> Rows:
        if op.kind not in _CHANGES:
            return self.rows
        return effect(Op(op.number, "append", op.args) if op.kind == "once" else op, self.rows)

    def _where(self, pending: int | None) -> str:
        op = "between operations" if pending is None else str(op_of(self.mix, self.seed, pending))
        return f"mix {self.mix!r}, seed {self.seed}, table {self.folder}, killed in {op}"

    # --- checks ------------------------------------------------------------------------------------------------------

    def _look(self, pending: int | None) -> None:
        where = self._where(pending)
        result = model(trilake.open(self.uri).to_arrow())
        if pending is None:
            self.result.between += 1
            self._same(where, self.rows, result)
        else:
            op = op_of(self.mix, self.seed, pending)
            self.result.kinds[op.kind] += 1
            after = self._after(op)
            if result == after != self.rows:
                self.result.landed += 1
            elif result != self.rows:
                raise BrokenError(
                    f"{where}: beside the rows before it: {difference(self.rows, result)};"
                    f" beside those after it: {difference(after, result)}"
                )
            elif after != self.rows:
                self.result.lost += 1
            self.rows = result
            # Idempotent operations are repeated, landed or not; all others are abandoned.
            self.next = pending if op.kind in MIXES[self.mix].again else pending + 1
        self._verify(where, self.uri, MIXES[self.mix].format)
        getattr(self, f"_look_{MIXES[self.mix].format}")(where)
        self._look_at_sinks(where)

    def _same(self, where: str, expected: Rows, result: Rows) -> None:
        if result != expected:
            raise BrokenError(f"{where}: {difference(expected, result)}")

    def _verify(self, where: str, uri: str, format: str) -> None:
        findings = trilake.verify(uri, format=format)
        broken = [f for f in findings.findings if f.code not in LEFTOVERS]
        if broken or findings.skipped:
            raise BrokenError(f"{where}: {broken} {findings.skipped}")

    def _look_delta(self, where: str) -> None:
        log = DeltaLog(open_store(self.uri), standard_engine())
        commits = log.commits()
        numbers = [v for v, _ in commits]
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise BrokenError(f"{where}: the log has the versions {numbers}")
        notes = {v: info.get("userMetadata") for v, info in log.parse(commits).of("commitInfo")}
        for number, version in self.versions.items():
            op = op_of(self.mix, self.seed, number)
            if version > numbers[-1]:
                raise BrokenError(f"{where}: acknowledged version {version} is not there")
            # A repeated batch returns the newest version.
            if version >= numbers[0] and notes[version] != f"op:{number}" and op.kind != "once":
                raise BrokenError(f"{where}: version {version} is of {notes[version]}, not of operation {number}")
        self.versions = {n: v for n, v in self.versions.items() if v >= numbers[0]}

    def _look_lance(self, where: str) -> None:
        versions = list(list_versions(open_store(self.uri)).versions)
        if versions != list(range(versions[0], versions[-1] + 1)):
            raise BrokenError(f"{where}: the dataset has the versions {versions}")
        if self.versions and max(self.versions.values()) > versions[-1]:
            raise BrokenError(f"{where}: an acknowledged version is not among {versions}")

    def _look_trevni(self, where: str) -> None:
        del where

    def _look_at_sinks(self, where: str) -> None:
        """Check that sinks, which may be behind, have only rows of the source, each once."""
        for sink in ("delta", "lance", "trevni") if self.mix == "streams" else ():
            place = self.folder / sink
            if not place.exists() or not _table_exists(place, sink):
                continue
            result = model(trilake.open(str(place), format=sink).to_arrow())
            foreign = {i: r for i, r in result.items() if self.rows.get(i) != r}
            if foreign:
                raise BrokenError(f"{where}: the stream into {sink} has rows that are not the source's: {foreign}")
            self._verify(where, str(place), sink)

    def _days_pass(self) -> None:
        """Make everything two days older, so that clean-ups have work."""
        for path in self._files():
            self.result.leftovers += path.name.startswith(".trilake-") or ".trilake-" in path.parent.name
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - _DAYS_NS))

    def _files(self) -> list[Path]:
        return [p for p in self.folder.rglob("*") if p.is_file()]

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Finish the streams, and check that a clean-up removes leftovers and nothing else."""
        where = f"mix {self.mix!r}, seed {self.seed}, table {self.folder}, at the end"
        tables = {"t": MIXES[self.mix].format}
        if self.mix == "streams":
            for sink in ("delta", "lance", "trevni"):
                run_stream(self.folder, sink)
                tables[sink] = sink
        for name, format in tables.items():
            place = self.folder / name
            if not _table_exists(place, format):
                if self.rows:
                    raise BrokenError(f"{where}: {place} has nothing, of {len(self.rows)} rows")
                continue  # nothing was ever written
            time.sleep(0.002)
            _clean(place, format, where)
            self._same(f"{where}, {name}", self.rows, model(trilake.open(str(place), format=format).to_arrow()))
        left = [p for p in self._files() if ".trilake-" in str(p.relative_to(self.folder))]
        if left:
            raise BrokenError(f"{where}: clean-ups have left {left}")


def _table_exists(place: Path, format: str) -> bool:
    """Return whether a table exists; files that a dead job moved but did not commit do not count."""
    if format == "trevni":
        return any(file.key.endswith(".trv") for file in list_files(open_store(place)))
    mark = {"delta": "_delta_log/*.json", "lance": "_versions/*.manifest"}[format]
    return next(place.glob(mark), None) is not None


def _clean(place: Path, format: str, where: str) -> None:
    """Remove leftovers, and check that only required files stay."""
    store = open_store(place)
    if format == "delta":
        table = trilake.open(str(place), format="delta")
        table.vacuum(0, dry_run=False, enforce_retention=False)
        on_disk = {m.key for m in store.list() if m.key.endswith(".parquet") and not m.key.startswith("_")}
        named = set(table.refresh().files()["path"].to_pylist())
    elif format == "lance":
        cleanup(store, 0, SYSTEM_RUNTIME, delete_unverified=True)
        folders = ("data/", "_deletions/", "_transactions/")
        on_disk = {m.key for m in store.list() if m.key.startswith(folders)}
        named = {k for k in files_of(Snapshot.open(store, SYSTEM_RUNTIME).manifest) if k.startswith(folders)}
    else:
        for _ in range(2):  # the end file of an abandoned job stays until it is stale
            jobs.finish_stale_jobs(store, SYSTEM_RUNTIME.clock_ms() + 1, stale_ms=0)
            time.sleep(0.002)
        on_disk = {m.key for m in store.list() if not m.key.startswith("_streams/")}
        named = {m.key for m in jobs.visible(store) if m.key.endswith(".trv")}
    if on_disk != named:
        raise BrokenError(f"{where}: {place} has {sorted(on_disk - named)} too many, lacks {sorted(named - on_disk)}")


@contextmanager
def template(folder: Path) -> Iterator[Template]:
    """Start a template that writes errors of victims to ``errors.txt`` in a folder."""
    with (folder / "errors.txt").open("wb") as errors:
        running = Template(errors)
        try:
            if running.line() != ["ready"]:
                raise BrokenError(f"the template did not start, see {folder / 'errors.txt'}")
            yield running
        finally:
            running.end()


def run_kills(folder: Path, kills: int, seed: int, mixes: tuple[str, ...] = tuple(MIXES)) -> Result:
    """Kill victims of the mixes in turn; raise ``BrokenError`` if a promise is broken."""
    result = Result()
    share = {m: kills // len(mixes) + (i < kills % len(mixes)) for i, m in enumerate(mixes)}
    with template(folder) as victims:
        for mix, count in share.items():
            for first in range(0, count, PER_TABLE):
                place = folder / f"{mix.replace(' ', '-')}-{first}"
                place.mkdir()
                table = TableUnderFire(mix, place, seed + first, result)
                for _ in range(min(PER_TABLE, count - first)):
                    table.kill(victims)
                table.finish()
    return result
