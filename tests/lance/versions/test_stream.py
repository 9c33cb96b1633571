"""Datasets as streams: every fragment once, and one version per batch, across crashes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import cleanup
from trilake.lance.commands.fragment_writer import write_fragments
from trilake.lance.commands.stream_sink import commit_batch
from trilake.lance.commands.write import plan_write, write
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.scan import ScanPlan, scan
from trilake.lance.versions import transaction
from trilake.lance.versions.stream import LanceOffset, LanceStream, parse_options
from trilake.lance.versions.versions import list_versions
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore
from trilake.table.streams import BatchId, StreamDataLossError, StreamError

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def append(store: Store, *ids: int) -> None:
    write(store, SCHEMA, rows(*ids).to_batches(), "append", SYSTEM_RUNTIME)


def stream(store: Store, **options: str) -> LanceStream:
    return LanceStream(store, transaction.load(store), parse_options(options))


def ids_of(store: Store, batch: list[Any]) -> list[int]:
    out = []
    for fragment, schema in batch:
        view = View(schema)
        reader = FragmentReader(store, fragment, schema)
        for found in scan(ScanPlan(view, view.schema.project(["id"]), None), [reader], threads=1):
            out += found["id"].to_pylist()
    return out


def everything(found: LanceStream, start: LanceOffset | None = None, limit: int | None = 1) -> list[int]:
    start, out = start or found.initial(), []
    while (end := found.latest(start, limit)) != start:
        out += ids_of(found.store, found.batch(start, end))
        start = end
    return out


def ids(store: Store) -> list[int]:
    manifest = transaction.load(store)
    return sorted(ids_of(store, [(f, manifest.schema) for f in manifest.fragments]))


def test_first_version_and_later_appends() -> None:
    store = MemoryStore()
    for i in range(4):
        append(store, 2 * i, 2 * i + 1)
    assert everything(stream(store)) == list(range(8))
    assert everything(stream(store), limit=3) == list(range(8))
    assert everything(stream(store, startingVersion="3")) == [4, 5, 6, 7]
    found = stream(store)
    start = found.initial()
    end = found.latest(start, 2)
    assert LanceOffset.from_json(end.to_json()) == end
    append(store, 8)
    again = stream(store)
    assert again.initial() != start
    assert ids_of(store, again.batch(again.initial(), end)) == [0, 1, 2, 3]
    assert everything(again, end) == [4, 5, 6, 7, 8]
    now = stream(store, startingVersion="latest")
    assert everything(now) == []
    now.stop_at_newest()
    append(store, 9)
    assert everything(now) == []


def test_stream_after_compaction_delete_and_new_column(tmp_path: Any) -> None:
    uri = str(tmp_path / "d")
    dataset = lance.write_dataset(rows(0, 1), uri)
    for i in range(2, 5):
        dataset = lance.write_dataset(rows(i), uri, mode="append")
    from trilake.storage import open_store

    store = open_store(uri)
    found = stream(store)
    end = found.latest(found.initial())
    dataset.optimize.compact_files()
    lance.write_dataset(rows(5), uri, mode="append")
    assert everything(stream(store), end) == [5]
    lance.dataset(uri).delete("id = 1")
    lance.write_dataset(rows(6), uri, mode="append")
    place = LanceOffset(list_versions(store).latest - 1)
    with pytest.raises(StreamError, match="deleted or replaced"):
        everything(stream(store), place)
    for option in "ignoreDeletes", "skipChangeCommits", "ignoreChanges":
        assert everything(stream(store, **{option: "true"}), place) == [6]
    old = stream(store)
    end = old.latest(old.initial())
    lance.dataset(uri).add_columns({"n": "id * 2"})
    with pytest.raises(StreamError, match="columns changed"):
        everything(old, end)
    assert everything(stream(store), end) == []
    lance.write_dataset(rows(1), uri, mode="overwrite")
    with pytest.raises(StreamError):
        everything(stream(store), LanceOffset(list_versions(store).latest))


def test_cleaned_up_versions_are_reported() -> None:
    store = MemoryStore()
    for i in range(5):
        append(store, i)
    cleanup(store, 0, SYSTEM_RUNTIME)
    with pytest.raises(StreamDataLossError):
        everything(stream(store), LanceOffset(2))
    assert everything(stream(store, failOnDataLoss="false"), LanceOffset(2)) == [4]
    with pytest.raises(StreamError, match="newest version is 5"):
        everything(stream(store), LanceOffset(9))


@pytest.mark.parametrize("wrong", [{}, None, {"version": "x", "fragment": 0}])
def test_invalid_offsets_are_rejected(wrong: Any) -> None:
    with pytest.raises(StreamError):
        LanceOffset.from_json(wrong)


@pytest.mark.parametrize("wrong", [{"startingVersion": "x"}, {"maxFilesPerTrigger": "0"}, {"ignoreDeletes": "1"}])
def test_invalid_options_are_named(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_options(wrong)


# --- batches ----------------------------------------------------------------------------------------------------------


def write_batch(store: Store, batch: BatchId, table: pa.Table, mode: Any = "append") -> int | None:
    plan = plan_write(store, mode, SYSTEM_RUNTIME)
    target = plan.target(SCHEMA)
    return commit_batch(
        store, plan, target, batch, write_fragments(store, table.to_batches(), target, plan.options, plan.runtime)
    )


def test_repeated_batch_is_written_once() -> None:
    store = MemoryStore()
    for _ in range(2):
        assert write_batch(store, BatchId("q", 0), rows(1, 2)) == 1
    assert write_batch(store, BatchId("q", 1), rows(3)) == 2
    append(store, 4)
    assert write_batch(store, BatchId("q", 1), rows(3)) == 2
    assert write_batch(store, BatchId("q", 2), rows()) is None
    assert write_batch(store, BatchId("other", 0), rows(5)) == 4
    assert ids(store) == [1, 2, 3, 4, 5]
    for _ in range(2):
        write_batch(store, BatchId("all", 0), rows(9), "overwrite")
    assert ids(store) == [9]


def test_two_queries_create_one_dataset_and_runs_race() -> None:
    store = MemoryStore()
    plans = [plan_write(store, "append", SYSTEM_RUNTIME) for _ in range(2)]
    for number, plan in enumerate(plans):
        target = plan.target(SCHEMA)
        fragments = write_fragments(store, rows(number).to_batches(), target, plan.options, plan.runtime)
        commit_batch(store, plan, target, BatchId(f"q{number}", 0), fragments)
    assert ids(store) == [0, 1]
    done: list[int] = []

    def faster(op: str, keys: tuple[str, ...]) -> None:
        if op == "put_if_absent" and "_versions" in str(keys) and not done:
            done.append(1)
            write_batch(store, BatchId("q0", 1), rows(7))

    write_batch(FaultStore(store, before=faster), BatchId("q0", 1), rows(7))
    assert done
    assert ids(store) == [0, 1, 7]


def test_two_queries_create_one_dataset_concurrently() -> None:
    """The other query commits the first version between this query's check and its commit: the query failed."""
    store = MemoryStore()
    done: list[int | None] = []

    def faster(op: str, keys: tuple[str, ...]) -> None:
        if op == "put_if_absent" and "_versions" in str(keys) and not done:
            done.append(None)
            done.append(write_batch(store, BatchId("other", 0), rows(1, 2)))

    assert write_batch(FaultStore(store, before=faster), BatchId("q", 0), rows(3)) == 2
    assert done == [None, 1]
    assert ids(store) == [1, 2, 3]


def test_unverifiable_claim_is_an_error() -> None:
    store = MemoryStore()
    append(store, 0)
    write_batch(store, BatchId("q", 0), rows(1))
    write_batch(store, BatchId("x", 0), rows(8), "overwrite")
    cleanup(store, 0, SYSTEM_RUNTIME)
    with pytest.raises(StreamError, match="cannot tell"):
        write_batch(store, BatchId("q", 0), rows(1))


class _TornStore(MemoryStore):
    """The next listing of versions misses one, as pages from different moments may."""

    hidden = ""

    def list(self, prefix: str = "", **more: Any) -> Any:
        missed = self.hidden if prefix.startswith("_versions") else ""
        self.hidden = "" if missed else self.hidden
        return (m for m in super().list(prefix, **more) if not missed or not m.key.endswith(missed))


def test_version_missing_in_one_listing_is_not_lost() -> None:
    store = _TornStore()
    append(store, 0)
    assert write_batch(store, BatchId("q", 0), rows(1)) == 2
    write(store, SCHEMA, rows(5).to_batches(), "overwrite", SYSTEM_RUNTIME)  # the new dataset has none of its files
    plan = plan_write(store, "append", SYSTEM_RUNTIME)
    target = plan.target(SCHEMA)
    fragments = write_fragments(store, rows(1).to_batches(), target, plan.options, plan.runtime)
    store.hidden = "/2.manifest"
    assert commit_batch(store, plan, target, BatchId("q", 0), fragments) == 2
    assert not store.hidden
    assert ids(store) == [5]


def _crash_at_the_manifest(op: str, keys: tuple[str, ...]) -> None:
    if op == "put_if_absent" and "_versions" in str(keys):
        raise SimulatedCrash


@pytest.mark.parametrize("first", [True, False])
def test_claim_without_files_is_ignored(first: bool) -> None:
    """Its writer died, and a clean-up, or a user following the help of FOREIGN_FILES, removed its files."""
    store = MemoryStore()
    if not first:
        append(store, 0)
    before = {m.key for m in store.list("data")}
    for _ in range(2):  # the second time, the claim after it has no files, either
        with pytest.raises(SimulatedCrash):
            write_batch(FaultStore(store, before=_crash_at_the_manifest), BatchId("q", 1), rows(1, 2))
        store.delete([m.key for m in store.list("data") if m.key not in before])
    expected = [1, 2] if first else [0, 1, 2]
    write_batch(store, BatchId("q", 1), rows(1, 2))
    assert ids(store) == expected
    write_batch(store, BatchId("q", 1), rows(1, 2))
    assert ids(store) == expected


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.soak) for s in range(4, 300))])
def test_queries_crash_at_any_request(seed: int) -> None:
    random_ = random.Random(seed)
    source, target = MemoryStore(), MemoryStore()
    offsets: list[tuple[LanceOffset, LanceOffset]] = []
    commits = written = deaths = 0

    def grow() -> None:
        nonlocal written
        append(source, *range(written, written + 2))
        written += 2

    grow()
    for step in range(40):
        place: Store = target
        if step < 36:
            fault = Fault(nth=random_.randint(1, 25), kind="crash", when=random_.choice(["before", "after"]))
            place = FaultStore(target, [fault])
            if random_.random() < 0.4:
                grow()
        try:
            found = stream(source)
            while True:
                if commits == len(offsets):
                    start = offsets[-1][1] if offsets else found.initial()
                    end = found.latest(start, random_.randint(1, 3))
                    if offsets and end == start:
                        break
                    offsets.append((start, end))
                start, end = offsets[-1]
                batch = found.batch(found.initial() if len(offsets) == 1 else start, end)
                write_batch(place, BatchId("q", len(offsets) - 1), rows(*ids_of(source, batch)))
                commits += 1
        except SimulatedCrash:
            deaths += 1
    assert deaths
    assert ids(target) == list(range(written))
