"""Vacuum: garbage goes, and nothing else, whatever happened before and whenever it dies."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import add, clocked, lines, log_of, metadata, protocol, remove, rows
from tests.runtimes import runtime_in_ms
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.maintenance.vacuum import LAST_VACUUM, VacuumResult, vacuum
from trilake.delta.commands.maintenance.vacuum_files import hidden, references, vector_files
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor, z85_encode
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.errors import (
    ClockError,
    InvalidArgumentError,
    MissingFileError,
    StorageError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from trilake.storage import open_store
from trilake.storage.faults import Fault, FaultStore, SimulatedCrash
from trilake.storage.memory import MemoryStore
from trilake.storage.staging import staging

HOUR = 3_600_000
WEEK = 168
LATER = runtime_in_ms(lambda: 1000 * HOUR)
SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])


@dataclass
class _World:
    """A table in memory, the clock of its writers and its store, and the rows of every version."""

    now: int = 1_000_000 * HOUR
    configuration: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] | None = None
    ids: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))
    versions: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=lambda: self.now)
        self.log = DeltaLog(self.store, standard_engine())
        self.runtime = runtime_in_ms(
            lambda: self.now, new_id=lambda: str(uuid.UUID(int=next(self.ids))), sleep=lambda _: None
        )

    def write(self, values: list[tuple[int, int]], mode: Any = "append", **request: Any) -> None:
        table = pa.table({"p": [p for p, _ in values], "n": [n for _, n in values]}, schema=SCHEMA)
        if not self.versions:
            request |= {"properties": self.configuration, "partition_by": self.partition_by}
        asked = WriteRequest(mode, from_arrow(SCHEMA), **request)
        write_arrow(self.log, SCHEMA, iter(table.to_batches()), asked, self.runtime)
        self.now += 1000  # two commits are never of one time
        self.note()

    def note(self) -> None:
        """Remember what the newest version holds, and those before it that are not known."""
        newest = self.log.head().version
        for v in range(max(self.versions, default=-1) + 1, newest + 1):
            self.versions[v] = rows(self.read(v))

    def read(self, version: int | None = None) -> pa.Table:
        return ArrowDeltaTable(self.store, standard_engine(), version=version).to_arrow()

    def vacuum(self, **options: Any) -> VacuumResult:
        done = vacuum(self.log, runtime=self.runtime, **options)
        self.note()
        return done

    def put(self, key: str) -> None:
        self.store.put(key, b"x")

    def there(self, key: str) -> bool:
        return any(o.key == key for o in self.store.list())

    def current_since(self, cutoff: int) -> list[int]:
        """The versions that were the newest one at the cut-off time or later."""
        times = {v: o.modified_ms for v, o in self.log.commits()}
        newest = max(times)
        return [v for v in times if v == newest or times[v + 1] >= cutoff]


# --- what goes and what stays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("stated", ["false", "true"])
def test_files_stay_that_a_writer_whose_clock_is_behind_has_just_removed(stated: str, lite: bool) -> None:
    world = _World(configuration={"delta.enableInCommitTimestamps": stated})
    world.write([(1, 1)])
    world.now += 3 * WEEK * HOUR
    behind = runtime_in_ms(lambda: world.now - 2 * WEEK * HOUR, new_id=world.runtime.new_id)
    request = WriteRequest("overwrite", from_arrow(SCHEMA))
    write_arrow(world.log, SCHEMA, pa.table({"p": [2], "n": [2]}, schema=SCHEMA).to_batches(), request, behind)
    world.now += HOUR
    assert world.vacuum(lite=lite).paths == []
    assert rows(world.read(0)) == world.versions[0]


def test_files_that_were_replaced_go_once_the_retention_is_over() -> None:
    world = _World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    (old,) = world.log.tombstones(world.log.snapshot())["path"].to_pylist()
    world.now += WEEK * HOUR - 1000
    assert world.vacuum(dry_run=True).paths == []
    world.now += 1
    dry = world.vacuum(dry_run=True)
    assert (dry.paths, dry.dry_run, dry.version) == ([old], True, None)
    assert world.there(old)
    assert world.log.head().version == 1
    done = world.vacuum()
    assert done.paths == [old]
    assert done.size == dry.size > 0
    assert not world.there(old)
    assert rows(world.read()) == [{"p": 1, "n": 2}]


def test_the_history_tells_of_a_vacuum() -> None:
    world = _World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.now += 2 * WEEK * HOUR
    done = world.vacuum(retention_hours=200)
    history = ArrowDeltaTable(world.store, standard_engine()).history(2).to_pylist()
    assert done.version == 3
    assert [h["operation"] for h in history] == ["VACUUM END", "VACUUM START"]
    assert dict(history[0]["operationParameters"]) == {"status": "COMPLETED"}
    assert dict(history[0]["operationMetrics"]) == {"numDeletedFiles": "1", "numVacuumedDirectories": "1"}
    assert dict(history[1]["operationParameters"]) == {
        "retentionCheckEnabled": "true",
        "defaultRetentionMillis": str(WEEK * HOUR),
        "specifiedRetentionMillis": str(200 * HOUR),
    }
    assert dict(history[1]["operationMetrics"]) == {"numFilesToDelete": "1", "sizeOfDataToDelete": str(done.size)}
    assert world.vacuum(record=False).version is None
    assert world.log.head().version == 3


def test_files_nobody_named_go_when_they_are_old_and_hidden_ones_stay() -> None:
    world = _World()
    world.write([(1, 1)])
    kept = [
        "_symlink_format_manifest/manifest",
        "_hidden",
        ".crc",
        "a/.b/c.parquet",
        "a/_b/c.parquet",
        "_delta_log/stray",
        "_change_data_2/x",
        "_p=1/x",
        "a/_SUCCESS",
    ]
    garbage = [
        "stray.parquet",
        "a/b/c.txt",
        "p=1/x",
        "_change_data/cdc-1.parquet",
        "ab/deletion_vector_x.bin",
        "ü %20 +",
    ]
    for key in [*kept, *garbage]:
        world.put(key)
    world.now += (WEEK + 1) * HOUR
    world.put("young.parquet")
    assert sorted(world.vacuum().paths) == sorted(garbage)
    assert all(world.there(k) for k in [*kept, "young.parquet"])
    assert not any(world.there(k) for k in garbage)


def test_files_of_a_table_inside_are_that_tables() -> None:
    world = _World()
    world.write([(1, 1)])
    for key in (
        "inner/_delta_log/00000000000000000000.json",
        "inner/x",
        "inner/p=1/x",
        "inner2/x",
        "a/b/_delta_log/x",
        "a/x",
    ):
        world.put(key)
    world.now += (WEEK + 1) * HOUR
    assert sorted(world.vacuum().paths) == ["a/x", "inner2/x"]


def test_folders_of_partition_columns_are_not_hidden() -> None:
    keys = pa.array(["_p=1/.q=2/x", "_p=1/_x", "_p=1", "_r=1/x", ".a%2Fb=1/x", "x/_p=1/.q=3/y", "_pp=1/x"])
    assert hidden(keys, ["_p", ".q", "n", ".a/b"]).to_pylist() == [False, True, True, True, False, False, True]
    world = _World(partition_by=("p",))
    world.write([(1, 1), (2, 2)])
    world.write([(1, 3)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    assert [p.partition("/")[0] for p in sorted(world.vacuum().paths)] == ["p=1", "p=2"]
    assert rows(world.read()) == [{"p": 1, "n": 3}]


def test_a_tombstone_within_the_retention_protects_an_old_file() -> None:
    world = _World()
    world.write([(1, 1)])
    world.now += 5 * WEEK * HOUR
    world.write([(1, 2)], "overwrite")
    write_checkpoint(world.log, world.log.snapshot(), world.runtime)
    world.now += (WEEK - 1) * HOUR
    assert world.vacuum().paths == []
    assert rows(world.read(0)) == [{"p": 1, "n": 1}]
    world.now += 2 * HOUR
    assert len(world.vacuum().paths) == 1


def test_what_a_checkpoint_forgot_is_protected_by_a_longer_retention() -> None:
    """A checkpoint holds no tombstones older than the table's retention; the commits are asked for more."""
    world = _World(configuration={"delta.deletedFileRetentionDuration": "interval 1 hour"})
    world.write([(1, 1)])
    world.now += 100 * HOUR
    world.write([(1, 2)], "overwrite")
    world.now += 50 * HOUR
    write_checkpoint(world.log, world.log.snapshot(), world.runtime)
    assert world.vacuum(retention_hours=60).paths == []
    assert rows(world.read(0)) == [{"p": 1, "n": 1}]
    assert len(world.vacuum(retention_hours=49).paths) == 1


def test_the_time_of_the_commit_counts_not_that_of_its_preparation() -> None:
    log = log_of([add("f0")], store=(store := MemoryStore(clock=lambda: 1000 * HOUR)))
    store.put("f0", b"x")
    store.put(commit_key(1), lines([add("f1"), remove("f0", deletionTimestamp=5 * HOUR)]))
    # The commit that removed f0 took a long time to land: readers of version 0 may be at work since then.
    runtime = runtime_in_ms(lambda: (1000 + WEEK) * HOUR)
    assert vacuum(clocked(log, runtime.clock_ms), runtime=runtime).paths == []


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), "a week", True])
def test_a_retention_that_is_none(hours: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        vacuum(log_of([]), retention_hours=hours, enforce_retention=False)


def test_a_short_retention_is_refused_unless_somebody_insists() -> None:
    world = _World(configuration={"delta.deletedFileRetentionDuration": "interval 90 minutes"})
    world.write([(1, 1)])
    world.put("x")
    world.now += 1
    with pytest.raises(InvalidArgumentError, match="keep at least 2 hours") as caught:
        world.vacuum(retention_hours=1)
    assert "retentionDurationCheck.enabled" in str(caught.value)
    assert world.there("x")
    assert world.vacuum(retention_hours=0, enforce_retention=False).paths == ["x"]
    start = ArrowDeltaTable(world.store, standard_engine()).history(2).to_pylist()[1]
    assert dict(start["operationParameters"])["retentionCheckEnabled"] == "false"


def test_a_table_that_cannot_be_written_is_not_vacuumed() -> None:
    unknown = protocol(3, 7, readerFeatures=["vacuumProtocolCheck"], writerFeatures=["vacuumProtocolCheck", "new"])
    log = log_of([unknown, metadata()])
    log.store.put("x", b"x")
    with pytest.raises(UnsupportedProtocolError, match="new"):
        vacuum(log, runtime=runtime_in_ms(lambda: 10**15))
    assert bytes(log.store.read("x")) == b"x"


# --- references that a listing does not show -------------------------------------------------------------------------


def vector(number: int, kind: str = "u", prefix: str = "") -> tuple[dict[str, Any], str]:
    """A descriptor, and the file it means."""
    made = uuid.UUID(int=number * 0x1234567890ABCDEF1234567)
    descriptor = {"storageType": kind, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    return {**descriptor, "pathOrInlineDv": prefix + z85_encode(made.bytes)}, f"deletion_vector_{made}.bin"


def test_deletion_vectors_of_live_and_lately_removed_files_stay() -> None:
    store = MemoryStore(clock=lambda: 0)
    live, live_file = vector(1)
    prefixed, prefixed_file = vector(2, prefix="a/b c")
    late, late_file = vector(3)
    gone, gone_file = vector(4, prefix="zz")
    day, now = 24 * HOUR, 1000 * HOUR
    log = log_of(
        [
            add("f", deletionVector=live),
            add("g", deletionVector=prefixed),
            remove("h", deletionTimestamp=now - day, deletionVector=late),
            remove("i", deletionTimestamp=now - 30 * day, deletionVector=gone),
        ],
        store=store,
    )
    for key in ("f", "g", "h", "i", live_file, f"a/b c/{prefixed_file}", late_file, f"zz/{gone_file}"):
        store.put(key, b"x")
    done = vacuum(clocked(log, lambda: now), runtime=runtime_in_ms(lambda: now))
    assert sorted(done.paths) == ["i", f"zz/{gone_file}"]


@given(st.lists(st.tuples(st.integers(0, 2**128 - 1), st.text("ab/ %ü", max_size=5)), max_size=30))
def test_paths_of_vectors_are_computed_as_readers_do(found: list[tuple[int, str]]) -> None:
    texts = [prefix + z85_encode(uuid.UUID(int=n).bytes) for n, prefix in found]
    rows_ = [{"storageType": "u", "pathOrInlineDv": t, "sizeInBytes": 1, "cardinality": 1} for t in texts]
    fields = log_of([]).snapshot().adds.schema.field("deletionVector").type
    files, absolute, damaged = vector_files(pa.chunked_array([pa.array([*rows_, None], fields)]))
    expected = {DeletionVectorDescriptor("u", t, 1, 1).relative_path() for t in texts}
    assert (set(files.to_pylist()), len(absolute), damaged) == (expected, 0, False)


@pytest.mark.parametrize("path", ["short", "é" * 20, "~" * 20, "#" * 20])
def test_a_damaged_vector_protects_every_vector_file(path: str) -> None:
    store = MemoryStore(clock=lambda: 0)
    broken = {"storageType": "u", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    log = log_of([add("f", deletionVector=broken)], store=store)
    _, stray = vector(7)
    for key in ("f", "x", stray, f"ab/{stray}"):
        store.put(key, b"x")
    assert vacuum(clocked(log, LATER.clock_ms), runtime=LATER).paths == ["x"]


def test_absolute_and_odd_paths_protect_files_of_their_name() -> None:
    store = MemoryStore(clock=lambda: 0)
    absolute, absolute_file = vector(1, "p")
    absolute["pathOrInlineDv"] = f"{store.uri}/q/{absolute_file}"
    named = ["file:/elsewhere/a.parquet", "/x/b.parquet", "s3a://b/c%20d.parquet", "./e.parquet", "x/../f.parquet"]
    adds = [add(p) for p in named]
    log = log_of([*adds, add("g%20h.parquet"), add("w", deletionVector=absolute)], store=store)
    kept = ["a.parquet", "x/b.parquet", "c d.parquet", "e.parquet", "f.parquet", "g h.parquet", "g%20h.parquet"]
    for key in (*kept, f"q/{absolute_file}", "w", "garbage.parquet"):
        store.put(key, b"x")
    assert vacuum(clocked(log, LATER.clock_ms), runtime=LATER).paths == ["garbage.parquet"]


def test_references_of_nothing() -> None:
    snapshot = log_of([]).snapshot()
    assert references(snapshot.adds).name(pa.chunked_array([["a", "b"]])).tolist() == [False, False]


# --- lite ------------------------------------------------------------------------------------------------------------


def test_lite_takes_what_commits_removed_and_remembers_how_far_it_came() -> None:
    world = _World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.put("stray")
    world.now += (WEEK + 1) * HOUR
    done = world.vacuum(lite=True)
    assert len(done.paths) == 1
    assert not world.there(done.paths[0])
    assert world.there("stray"), "lite does not list"
    assert orjson.loads(bytes(world.store.read(LAST_VACUUM))) == {"latestCommitVersionOutsideOfRetentionWindow": 1}
    world.write([(1, 3)], "overwrite")
    assert world.vacuum(lite=True).paths == []
    world.now += (WEEK + 1) * HOUR
    assert len(world.vacuum(lite=True).paths) == 1
    assert world.vacuum().paths == ["stray"]


def test_lite_is_refused_where_the_log_was_cleaned_up() -> None:
    world = _World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    write_checkpoint(world.log, world.log.snapshot(), world.runtime)
    world.store.delete([commit_key(0)])
    world.versions.pop(0)
    world.now += (WEEK + 1) * HOUR
    with pytest.raises(VersionNotFoundError, match="full vacuum"):
        world.vacuum(lite=True)
    assert len(world.vacuum().paths) == 1
    world.write([(1, 4)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    assert len(world.vacuum(lite=True).paths) == 1, "a full vacuum is as good a start"


def test_lite_never_leaves_the_table() -> None:
    store = MemoryStore(clock=lambda: 0)
    hostile = ["../../etc/passwd", "/etc/passwd", "file:/x", "a/../../b", "_delta_log/00000000000000000000.json", ".x"]
    log = log_of([add("f")], [remove(p, deletionTimestamp=1) for p in [*hostile, "f"]], store=store)
    for key in ("f", ".x"):
        store.put(key, b"x")
    done = vacuum(clocked(log, LATER.clock_ms), lite=True, record=False, runtime=LATER)
    assert done.paths == ["f"]
    assert bytes(store.read(".x")) == b"x"


def test_lite_spares_what_came_back() -> None:
    store = MemoryStore(clock=lambda: 0)
    log = log_of([add("f")], [remove("f", deletionTimestamp=1), add("g")], [add("f")], store=store)
    assert vacuum(clocked(log, LATER.clock_ms), lite=True, dry_run=True, runtime=LATER).paths == []


# --- inventories -----------------------------------------------------------------------------------------------------


def test_an_inventory_takes_the_place_of_the_listing() -> None:
    world = _World()
    world.write([(1, 1)])
    for key in ("a/x", "y", "z"):
        world.put(key)
    old = world.now
    world.now += (WEEK + 1) * HOUR
    uri = world.store.uri
    inventory = pa.table(
        {
            "path": [f"{uri}/a/x", f"{uri}/y", f"{uri}/y", f"{uri}/a", "s3://other/z", f"{uri}-2/z"],
            "length": [1, 1, 1, 0, 1, 1],
            "isDir": [False, False, False, True, False, False],
            "modificationTime": [old, old, world.now, old, old, old],
        }
    )
    assert world.vacuum(inventory=inventory).paths == ["a/x"]
    with pytest.raises(InvalidArgumentError, match="inventory"):
        world.vacuum(inventory=inventory.drop_columns(["isDir"]))


# --- local disks -----------------------------------------------------------------------------------------------------


def _age(path: Path, hours: float) -> None:
    time = 1_000_000 * HOUR / 1000 - hours * 3600
    os.utime(path, (time, time), follow_symlinks=False)


def test_empty_folders_go_and_hostile_names_are_not_in_the_way(tmp_path: Path) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    store = open_store(str(root))
    store.put(commit_key(0), lines([protocol(), metadata(), add("live/f.parquet")]))
    for name in ("live/f.parquet", "old/deep/er/x", "odd %2F +ü\n'\"/x", "new/x", "_kept/x", "half/x", "half/young"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (root / "empty" / "er").mkdir(parents=True)
    (root / "fresh").mkdir()
    os.mkdir(os.fsencode(root) + b"/not text \xff")
    (Path(os.fsdecode(os.fsencode(root) + b"/not text \xff/x"))).write_text("x")
    for path in sorted([*root.rglob("*")], key=lambda p: -len(p.parts)):
        _age(path, 5 if path.name in ("young", "new", "fresh") or path.match("new/x") else 400)
    _age(outside / "precious", 400)
    (root / "linked").symlink_to(outside)
    (root / "a link").symlink_to(outside / "precious")
    runtime = runtime_in_ms(lambda: 1_000_000 * HOUR)
    done = vacuum(clocked(DeltaLog(store, standard_engine()), runtime.clock_ms), runtime=runtime)
    assert {"old/deep/er/x", "odd %2F +ü\n'\"/x", "half/x"} <= set(done.paths)
    assert set(done.folders) == {"old/deep/er", "old/deep", "old", "odd %2F +ü\n'\"", "empty/er", "empty"}
    left = {str(p.relative_to(root)) for p in root.iterdir()}
    assert {"live", "new", "_kept", "half", "fresh", "linked"} <= left
    assert not {"old", "empty"} & left
    assert any(b"\xff" in name for name in os.listdir(os.fsencode(root)))
    assert (root / "half" / "young").exists()
    assert (outside / "precious").exists(), "what a link leads to is not the table's"
    assert not [p for p in done.paths if p.startswith("linked")]
    assert "a link" in done.paths
    assert not os.path.lexists(root / "a link")


def test_a_folder_is_walked_once_for_files_and_once_for_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trilake.write(pa.table({"p": range(5), "n": range(5)}), tmp_path, partition_by="p")
    scanned: list[str] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scanned.append(os.fspath(path).rstrip("/")) or real(path))
    assert vacuum(DeltaLog(open_store(str(tmp_path)), standard_engine()), dry_run=True).paths == []
    assert {p: scanned.count(p) for p in scanned if "p=" in p} == {f"{tmp_path}/p={i}": 2 for i in range(5)}


def test_what_a_dead_job_staged_goes_when_it_is_old(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put(commit_key(0), lines([protocol(), metadata()]))
    for place in (tmp_path, tmp_path / "_hidden"):
        folder = staging(open_store(str(place)))
        assert folder is not None
        deep = Path(folder.__enter__().path, "_temporary", "0")
        deep.mkdir(parents=True)
        (deep / "part-0.parquet").write_bytes(b"half")
    (staged,) = tmp_path.glob(".trilake-*")
    now = next(iter(store.unfinished())).modified_ms
    runtime = runtime_in_ms(lambda: now + (WEEK - 1) * HOUR)
    assert vacuum(clocked(DeltaLog(store, standard_engine()), runtime.clock_ms), runtime=runtime).paths == []
    assert staged.exists()
    runtime = runtime_in_ms(lambda: now + (WEEK + 1) * HOUR)
    assert vacuum(clocked(DeltaLog(store, standard_engine()), runtime.clock_ms), runtime=runtime).paths == [
        f"{staged.name}/files/_temporary/0/part-0.parquet"
    ]
    assert not staged.exists()
    assert len(list((tmp_path / "_hidden").rglob("part-0.parquet"))) == 1, "what is hidden is none of its business"


def test_what_a_dead_writer_left_goes_when_it_is_old(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put(commit_key(0), lines([protocol(), metadata()]))
    output = store.open_output("p=1/x.parquet")
    output.write(b"half")
    (left,) = store.unfinished()
    (log_file,) = [*store.list("_delta_log")]
    now = left.modified_ms
    runtime = runtime_in_ms(lambda: now + (WEEK - 1) * HOUR)
    assert (
        vacuum(clocked(DeltaLog(store, standard_engine()), runtime.clock_ms), dry_run=True, runtime=runtime).paths == []
    )
    runtime = runtime_in_ms(lambda: now + (WEEK + 1) * HOUR)
    assert log_file.size
    assert vacuum(
        clocked(DeltaLog(store, standard_engine()), runtime.clock_ms), record=False, runtime=runtime
    ).paths == [left.key]
    assert [*store.unfinished()] == []
    output.__exit__(ValueError, ValueError(), None)


# --- failures and races ----------------------------------------------------------------------------------------------


def test_a_crash_at_any_call_leaves_a_sound_table() -> None:
    def prepared() -> _World:
        world = _World(configuration={"delta.enableDeletionVectors": "true"}, partition_by=("p",))
        world.write([(1, 1), (1, 2), (2, 1)])
        world.write([(1, 3)], "overwrite", replace_where="p = 1 AND n = 1 OR n = 3")
        world.now += (WEEK + 1) * HOUR
        world.write([(2, 5)], "overwrite")
        world.put("young")
        return world

    crashed, nth = True, 0
    while crashed:
        nth += 1
        world = prepared()
        store = FaultStore(world.store, [Fault(nth=nth, kind="crash")])
        try:
            vacuum(DeltaLog(store, standard_engine()), runtime=world.runtime)
            crashed = False
        except SimulatedCrash:
            pass
        world.note()
        cutoff = world.now - WEEK * HOUR
        for v in world.current_since(cutoff):
            if v <= 2:
                assert rows(world.read(v)) == world.versions[v]
        assert world.there("young")
        world.vacuum()
    assert nth > 10


def test_a_failed_delete_is_told_in_the_history() -> None:
    world = _World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    store = FaultStore(world.store, [Fault("delete", nth=2)])  # the first is of the file that tells the time
    with pytest.raises(StorageError):
        vacuum(DeltaLog(store, standard_engine()), runtime=world.runtime)
    end = ArrowDeltaTable(world.store, standard_engine()).history(1).to_pylist()[0]
    assert (end["operation"], dict(end["operationParameters"])) == ("VACUUM END", {"status": "FAILED"})
    assert len(world.vacuum().paths) == 1


def test_a_file_that_came_back_meanwhile_is_spared() -> None:
    world = _World()
    world.write([(1, 1)])
    (old,) = world.log.snapshot().adds.to_pylist()
    world.write([(1, 2)], "overwrite")
    world.now += (WEEK + 1) * HOUR

    def restore(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(2) and not world.there(key):
            action = {k: v for k, v in old.items() if v is not None} | {"partitionValues": {}}
            world.store.put_if_absent(key, lines([{"commitInfo": {}}, {"add": action}]))

    store = FaultStore(world.store, before=restore)
    done = vacuum(DeltaLog(store, standard_engine()), runtime=world.runtime)
    assert done.paths == []
    assert rows(world.read()) == [{"p": 1, "n": 1}, {"p": 1, "n": 2}]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3)),
        st.tuples(st.just("overwrite"), st.integers(0, 3)),
        st.tuples(st.just("replace"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("stray"), st.integers(0, 10**6)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.sampled_from(["full", "lite"]), st.integers(0, 60)),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=25)
@given(STEPS, st.booleans(), st.booleans(), st.integers(1, 60))
@example([("overwrite", 0), ("full", 0), ("full", 0)], False, True, 1)
def test_every_version_within_the_retention_reads_as_before(
    steps: list[tuple[str, int]], vectors: bool, feed: bool, retention: int
) -> None:
    conf = {"delta.deletedFileRetentionDuration": f"interval {retention} hours"}
    conf |= {"delta.enableDeletionVectors": "true"} if vectors else {}
    conf |= {"delta.enableChangeDataFeed": "true"} if feed else {}
    world = _World(configuration=conf, partition_by=("p",))
    world.write([(0, 0), (0, 1), (1, 2), (2, 3)])
    strays: dict[str, int] = {}
    count = 10
    kept_since = 0  # the changes of commits before that need files that a vacuum may have taken
    for kind, number in steps:
        world.now += 1000
        count += 1
        if kind == "append":
            world.write([(number, count), (0, count)])
        elif kind == "overwrite":
            world.write([(number, count)], "overwrite")
        elif kind == "replace":
            world.write([(number, count)], "overwrite", replace_where=f"n % 2 = {number % 2} OR n = {count}")
        elif kind == "wait":
            world.now += number * HOUR
        elif kind == "stray":
            strays[f"p={number % 3}/stray-{count}"] = world.now
            world.put(f"p={number % 3}/stray-{count}")
        elif kind == "checkpoint":
            write_checkpoint(world.log, world.log.snapshot(), world.runtime)
        else:
            times = {v: o.modified_ms for v, o in world.log.commits()}
            fed = [v for v in world.versions if times[v] >= kept_since] if feed and kind == "full" else []
            feeds = {v: rows(_changes(world, v)) for v in fed}
            cutoff = world.now - number * HOUR
            kept_since = max(kept_since, cutoff)
            within = [v for v in world.current_since(cutoff) if v in world.versions]
            world.vacuum(retention_hours=number, lite=kind == "lite", enforce_retention=False)
            for v in within:
                assert rows(world.read(v)) == world.versions[v]
            for v, expected in feeds.items():
                if times[v] >= cutoff:
                    assert rows(_changes(world, v)) == expected
            for key, time in strays.items():
                assert world.there(key) or (kind == "full" and time < cutoff) or time < 0
            if kind == "full":
                strays = {k: t for k, t in strays.items() if t >= cutoff}
                assert not [k for k, t in strays.items() if t < cutoff and world.there(k)]
            # What was readable no longer is nobody's promise.
            world.versions = {v: r for v, r in world.versions.items() if v in within or v > max(within)}


def _changes(world: _World, version: int) -> pa.Table:
    return ArrowDeltaTable(world.store, standard_engine()).changes(version, version).drop_columns(["_commit_timestamp"])


# --- tables of other writers -----------------------------------------------------------------------------------------

REAL = [
    "basic-with-vacuum-protocol-check-feature",
    "dv-partitioned-with-checkpoint",
    "k-cdf-table-with-cdc-and-dvs",
    "k-v2-checkpoints-json-with-sidecars",
    "log-replay-special-characters-b",
    "log-replay-dv-key-cases",
    "only-checkpoint-files",
    "rs-cdc_ict_table",
    "rs-table-with-dv-small",
    "snapshot-repartitioned",
    "table-with-columnmapping-mode-name",
    "data-reader-partition-values",
]


@pytest.mark.parametrize("name", REAL)
def test_no_live_file_of_a_real_table_goes(shared: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(shared / "corpus" / "delta" / "golden" / name / "delta", tmp_path / "t")
    log = DeltaLog(open_store(str(tmp_path / "t")), standard_engine())
    before = {o.key for o in log.store.list()}
    try:
        expected = rows(ArrowDeltaTable(log.store, standard_engine()).to_arrow())
    except MissingFileError:
        expected = []
    everything = runtime_in_ms(lambda: 10**14)
    log = clocked(log, everything.clock_ms)
    assert vacuum(log, runtime=everything, dry_run=True, lite="only" not in name).paths is not None
    done = vacuum(log, retention_hours=0, enforce_retention=False, record=False, runtime=everything)
    assert {o.key for o in log.store.list()} == before - set(done.paths) | {LAST_VACUUM}
    assert not set(done.paths) & set(decoded_paths(log.snapshot().adds["path"]).to_pylist())
    if expected:
        assert rows(ArrowDeltaTable(log.store, standard_engine()).to_arrow()) == expected
    assert vacuum(log, retention_hours=0, enforce_retention=False, record=False, runtime=everything).paths == []


def test_an_object_store(s3_options: Mapping[str, str]) -> None:
    store = open_store("s3://lake/maintained table", dict(s3_options))
    table = pa.table({"p": [1, 2], "n": [1, 2]}, schema=SCHEMA)
    log = DeltaLog(store, standard_engine())
    modes: tuple[Any, ...] = ("append", "overwrite")
    for mode in modes:
        request = WriteRequest(mode, from_arrow(SCHEMA), partition_by=("p",))
        write_arrow(log, SCHEMA, iter(table.to_batches()), request)
    store.put("p=9/stray", b"x")
    later = runtime_in_ms(lambda: 10**14)
    done = vacuum(clocked(log, later.clock_ms), runtime=later)
    assert (len(done.paths), done.folders) == (3, ())
    assert [o.key for o in store.list("p=9")] == []
    assert rows(ArrowDeltaTable(store, standard_engine()).to_arrow()) == rows(table)
    copy = DeltaLog(open_store("s3://lake/a copy", dict(s3_options)), standard_engine())
    assert clone(log.snapshot(), log, copy).num_copied_files == 2
    shallow = DeltaLog(open_store("s3://lake/a reference", dict(s3_options)), standard_engine())
    clone(log.snapshot(), log, shallow, shallow=True)
    for place in (copy, shallow):
        assert rows(ArrowDeltaTable(place.store, standard_engine()).to_arrow()) == rows(
            ArrowDeltaTable(store, standard_engine()).to_arrow()
        )


# --- what is not the table's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lite", [False, True])
def test_nothing_behind_a_link_goes(tmp_path: Path, lite: bool) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    made = uuid.UUID(int=5)
    vector_file = f"deletion_vector_{made}.bin"
    linked_vector = {"storageType": "u", "pathOrInlineDv": "vv" + z85_encode(made.bytes), "offset": 1}
    linked_vector |= {"sizeInBytes": 4, "cardinality": 1}
    log = log_of(
        [add("p=1/f"), add("own/g")],
        [
            remove("p=1/f", deletionTimestamp=1, deletionVector=linked_vector),
            remove("p=1/deep/h", deletionTimestamp=1),
            remove("own/g", deletionTimestamp=1),
        ],
        store=open_store(str(root)),
    )
    for name in ("f", "deep/h", vector_file, "stray"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text("theirs")
    (root / "own").mkdir()
    (root / "own" / "g").write_text("ours")
    for link in ("p=1", "vv"):
        (root / link).symlink_to(outside)
    year = runtime_in_ms(lambda: 10**13)
    done = vacuum(clocked(log, year.clock_ms), lite=lite, runtime=year)
    assert done.paths == ["own/g"]
    assert sorted(p.name for p in outside.rglob("*") if p.is_file()) == sorted(["f", "h", vector_file, "stray"])


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("place", ["local", "memory"])
def test_nothing_of_a_table_inside_goes(tmp_path: Path, lite: bool, place: str) -> None:
    store = open_store(str(tmp_path)) if place == "local" else MemoryStore(clock=lambda: 1)
    marks = ["a/_delta_log/0.json", "b/c/_versions/1.manifest", "d/_staged/x.plan", "e/metadata/v1.metadata.json"]
    inner = ["a/f", "a/p=1/f", "b/c/f", "d/f", "e/data/f"]
    removes = [remove(p, deletionTimestamp=1) for p in [*inner, "b/f", "g"]]
    log = log_of([add("g")], removes, store=store)
    for key in [*marks, *inner, "b/f", "g"]:
        store.put(key, b"x")
    year = runtime_in_ms(lambda: 10**13)
    assert vacuum(clocked(log, year.clock_ms), lite=lite, runtime=year).paths == ["b/f", "g"]
    assert {o.key for o in store.list()} >= {*marks, *inner}


def test_files_older_than_the_table_that_nothing_names_stay_and_are_listed(caplog: pytest.LogCaptureFixture) -> None:
    world = _World()
    foreign = ["a.csv", f"part-00000-{uuid.UUID(int=1)}-c000.snappy.parquet", "p=1/old.parquet"]
    dead = f"part-00000-{uuid.UUID(int=2)}-{'0' * 8}.c000.zstd.parquet"
    for key in [*foreign, dead]:
        world.put(key)
    world.now += HOUR
    world.store.options["allow_foreign_files"] = "true"
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    for key in ("younger.parquet", "other.trv"):
        world.put(key)
    world.now += (WEEK + 1) * HOUR
    planned = world.vacuum(dry_run=True)
    done = world.vacuum()
    assert done.paths == planned.paths
    assert set(done.paths) >= {"younger.parquet", dead}
    assert len(done.paths) == 3
    assert sorted(done.foreign["path"].to_pylist()) == sorted([*foreign, "other.trv"])
    assert all(world.there(key) for key in [*foreign, "other.trv"])
    assert "4 foreign files left" in repr(done)
    assert "remove them by hand" in caplog.text


def test_files_of_a_converted_table_go_when_commits_removed_them() -> None:
    """They are older than the table, and its log names them."""
    store = MemoryStore(clock=lambda: 10 * HOUR)
    created = metadata()
    created["metaData"]["createdTime"] = 100 * HOUR
    old = remove("original.parquet", deletionTimestamp=200 * HOUR)
    store.put("original.parquet", b"x")
    store.put("never.parquet", b"x")
    log = log_of([created, add("original.parquet")], [old, add("new.parquet")], store=store)
    late = runtime_in_ms(lambda: 1000 * HOUR)
    store.delete([commit_key(0)])
    store.put(commit_key(0), lines([protocol(), created, add("original.parquet")]))
    done = vacuum(clocked(log, late.clock_ms), runtime=late)
    assert done.paths == ["never.parquet", "original.parquet"], "version 0 is older than its metadata says"


def test_a_clock_ahead_of_the_stores_deletes_nothing() -> None:
    world = _World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.put("young")
    ahead = runtime_in_ms(lambda: world.now + 40 * 24 * HOUR)
    for how in ({}, {"dry_run": True}, {"lite": True}, {"retention_hours": 0, "enforce_retention": False}):
        before = [o.key for o in world.store.list()]
        with pytest.raises(ClockError, match="ahead of the store's"):
            vacuum(world.log, runtime=ahead, **how)
        assert [o.key for o in world.store.list()] == before
    behind = runtime_in_ms(lambda: world.now - 40 * 24 * HOUR)
    assert vacuum(world.log, runtime=behind, record=False).paths == []


def test_temporary_files_of_the_log_go_when_they_are_old(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put(commit_key(0), lines([protocol(), metadata()]))
    names = [f".trilake-{c * 24}.tmp" for c in "abcde"]
    folders = ("", "_delta_log/", "_delta_log/_sidecars/", "_symlink_format_manifest/")
    left = [f"{folder}{name}" for folder, name in zip(folders, names, strict=False)]
    for key in [*left, f"_hidden/{names[4]}", "_delta_log/.trilake-notes.tmp"]:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_text("x")
    late = runtime_in_ms(lambda: 10**13)
    log = clocked(DeltaLog(store, standard_engine()), late.clock_ms)
    assert vacuum(log, runtime=late, lite=True, dry_run=True).paths == left[1:3]
    assert sorted(vacuum(log, runtime=late).paths) == sorted(left)
    assert (tmp_path / "_hidden" / names[4]).exists()
    assert (tmp_path / "_delta_log" / ".trilake-notes.tmp").exists()
