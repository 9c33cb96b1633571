"""The files of a version: parsing names and choosing among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delta.tables import add, lines, log_of, metadata, protocol, remove
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import (
    LAST_CHECKPOINT,
    LogListing,
    checkpoint_key,
    choose_segment,
    commit_key,
    first_gap,
    sort_listing,
)
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, LogGapError, TableNotFoundError, VersionNotFoundError
from trilake.storage.base import ObjectMeta
from trilake.storage.memory import MemoryStore

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def _listing(*names: str, empty: tuple[str, ...] = ()) -> LogListing:
    return sort_listing(ObjectMeta(f"_delta_log/{n}", 0 if n in empty else 9, 0) for n in names)


def _commits(*versions: int) -> list[str]:
    return [f"{v:020d}.json" for v in versions]


def _checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _part(version: int, part: int, of: int) -> str:
    return f"{version:020d}.checkpoint.{part:010d}.{of:010d}.parquet"


def test_unknown_files_are_ignored() -> None:
    listing = _listing(
        *_commits(0),
        ".tmp",
        "00000000000000000001.json.tmp",
        ".00000000000000000001.json.crc",
        "00000000000000000001.crc",
        "_last_checkpoint",
        f"_staged_commits/00000000000000000001.{UUID}.json",
        f"00000000000000000001.{UUID}.json",
        f"_sidecars/{UUID}.parquet",
        "1.json",
        "00000000000000000001.json.00000000000000000001.json",
        "00000000000000000001.checkpoint.parquet.tmp",
    )
    assert set(listing.commits) == {0}
    assert listing.checkpoints == ()
    assert listing.compactions == ()


def test_empty_log_is_not_a_table() -> None:
    with pytest.raises(TableNotFoundError, match="not a Delta table"):
        choose_segment(_listing("_last_checkpoint", f"_staged_commits/{UUID}.json"), uri="x")


@pytest.mark.parametrize("version", [-1, 3, 2**63, 10**30])
def test_version_out_of_range_is_rejected(version: int) -> None:
    with pytest.raises(VersionNotFoundError, match="newest version is 2"):
        choose_segment(_listing(*_commits(0, 1, 2)), uri="x", version=version)


def test_newest_complete_checkpoint_is_used() -> None:
    listing = _listing(*_commits(0, 1, 2, 3, 4), _checkpoint(1), _part(3, 1, 2), _part(3, 2, 2), _part(4, 1, 2))
    segment = choose_segment(listing, uri="x")
    assert segment.checkpoint_version == 3
    assert [f.key.rpartition("/")[2] for f in segment.checkpoint_files] == [_part(3, 1, 2), _part(3, 2, 2)]
    assert [c[0] for c in segment.commits] == [4]
    assert choose_segment(listing, uri="x", version=2).checkpoint_version == 1
    assert choose_segment(listing, uri="x", version=0).checkpoint_version is None


@pytest.mark.parametrize(
    "names",
    [
        [_part(2, 1, 3), _part(2, 3, 3)],
        [_part(2, 1, 2), _part(2, 2, 3)],
        [_part(2, 0, 1)],
        [_part(2, 1, 2), _part(2, 3, 2)],
        [_part(2, 1, 9_999_999_999)],
    ],
)
def test_incomplete_multi_part_checkpoint_is_ignored(names: list[str]) -> None:
    segment = choose_segment(_listing(*_commits(0, 1, 2), *names), uri="x")
    assert segment.checkpoint_version is None
    assert len(segment.commits) == 3


def test_different_part_counts_are_not_mixed() -> None:
    listing = _listing(*_commits(2), _part(2, 1, 2), _part(2, 1, 1), _part(2, 2, 3))
    assert [len(f) for _, f in listing.checkpoints] == [1]


def test_zero_length_checkpoints_and_compactions_are_ignored() -> None:
    compaction = f"{0:020d}.{1:020d}.compacted.json"
    names = [_checkpoint(2), _part(1, 1, 1), f"{2:020d}.checkpoint.{UUID}.json", compaction]
    listing = _listing(*_commits(0, 1, 2), *names, empty=tuple(names))
    segment = choose_segment(listing, uri="x")
    assert segment.checkpoint_version is None
    assert [c[:2] for c in segment.commits] == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_v2_checkpoints_with_a_uuid(extension: str) -> None:
    segment = choose_segment(_listing(*_commits(5, 6), f"{5:020d}.checkpoint.{UUID}.{extension}"), uri="x")
    assert segment.checkpoint_version == 5
    assert [c[0] for c in segment.commits] == [6]


@pytest.mark.parametrize("name", ["abc-def", UUID.upper(), "0"])
def test_v2_checkpoints_with_another_name(name: str) -> None:
    """Like the reference reader, whose pattern does not require a UUID."""
    segment = choose_segment(_listing(*_commits(5, 6), f"{5:020d}.checkpoint.{name}.json"), uri="x")
    assert (segment.checkpoint_version, [c[0] for c in segment.commits]) == (5, [6])


def test_checkpoint_without_its_commit_is_accepted() -> None:
    segment = choose_segment(_listing(_checkpoint(7)), uri="x")
    assert (segment.version, segment.checkpoint_version, segment.commits) == (7, 7, ())


@pytest.mark.parametrize(
    ("versions", "missing"), [([0, 2], 1), ([0, 1, 5, 6], 2), ([0, 1, 3], 2)], ids=["one", "three", "last"]
)
def test_gap_names_the_missing_version(versions: list[int], missing: int) -> None:
    with pytest.raises(LogGapError, match="not contiguous") as e:
        choose_segment(_listing(*_commits(*versions)), uri="x")
    assert e.value.context["version"] == missing
    assert f"{missing:020d}.json" in e.value.context["file"]


def test_gap_before_the_checkpoint_is_ignored() -> None:
    assert choose_segment(_listing(*_commits(0, 5, 6), _checkpoint(5)), uri="x").checkpoint_version == 5


def test_gap_after_the_requested_version_is_ignored() -> None:
    assert choose_segment(_listing(*_commits(0, 1, 3)), uri="x", version=1).version == 1


def test_cleaned_up_version_is_rejected() -> None:
    listing = _listing(*_commits(8, 9, 10, 11), _checkpoint(10))
    with pytest.raises(VersionNotFoundError, match="cleaned up") as e:
        choose_segment(listing, uri="x", version=9)
    assert "oldest readable version is 10" in str(e.value)
    assert choose_segment(listing, uri="x").version == 11


def test_missing_first_commits_without_a_checkpoint() -> None:
    with pytest.raises(LogGapError, match="begins with version 3, but no checkpoint") as e:
        choose_segment(_listing(*_commits(3, 4), _part(3, 1, 2)), uri="x")
    assert e.value.condition == "DELTA_TRUNCATED_TRANSACTION_LOG"
    assert e.value.context["file"] == f"x/{commit_key(0)}"
    with pytest.raises(LogGapError, match="not contiguous: 4 missing, beginning with version 0") as e:
        choose_segment(_listing(*_commits(3, 5)), uri="x")
    assert e.value.condition == "DELTA_VERSIONS_NOT_CONTIGUOUS"


@pytest.mark.parametrize("version", [9_223_372_036_854_775_807, 99_999_999_999_999_999_999])
def test_absurd_version_is_a_gap(version: int) -> None:
    with pytest.raises(LogGapError):
        choose_segment(_listing(*_commits(0, 1, version)), uri="x")
    log = log_of([])
    old = log.snapshot()
    log.store.put(commit_key(version), b"{}\n")
    with pytest.raises(LogGapError):
        log.update(old)


def test_compaction_files_replace_their_commits() -> None:
    names = [f"{a:020d}.{b:020d}.compacted.json" for a, b in [(1, 3), (1, 2), (2, 5), (4, 4), (6, 9), (0, 0)]]
    segment = choose_segment(_listing(*_commits(*range(8)), *names), uri="x")
    assert [c[:2] for c in segment.commits] == [(0, 0), (1, 3), (4, 4), (5, 5), (6, 6), (7, 7)]
    # Not beyond the requested version, and not across the checkpoint.
    assert [c[:2] for c in choose_segment(_listing(*_commits(*range(8)), *names), uri="x", version=2).commits] == [
        (0, 0),
        (1, 2),
    ]
    with_checkpoint = choose_segment(_listing(*_commits(*range(8)), *names, _checkpoint(2)), uri="x")
    assert [c[:2] for c in with_checkpoint.commits] == [(3, 3), (4, 4), (5, 5), (6, 6), (7, 7)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8), st.integers(0, 10))
def test_segment_covers_each_version_once(ranges: list[tuple[int, int]], checkpoint: int) -> None:
    names = [f"{a:020d}.{b:020d}.compacted.json" for a, b in ranges]
    segment = choose_segment(_listing(*_commits(*range(11)), *names, _checkpoint(checkpoint)), uri="x")
    covered = [v for first, last, _ in segment.commits for v in range(first, last + 1)]
    assert covered == list(range(checkpoint + 1, 11))


# --- the hint --------------------------------------------------------------------------------------------------------


def _log_with_checkpoint() -> DeltaLog:
    log = log_of([add("a")], [add("b")], [remove("a")], [add("c")])
    write_checkpoint(log, log.snapshot(2), SYSTEM_RUNTIME)
    return log


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"7",
        b'{"size":3}',
        b'{"version":1,"size":2}',
        b'{"version":0,"size":2}',
        b'{"version":3,"size":2}',
        b'{"version":99,"size":2}',
        b'{"version":-1}',
        b'{"version":"2"}',
        b'{"version":true}',
        b'{"version":2.0}',
        b'{"version":9223372036854775807}',
        b'{"version":1000000000000000000000000000000}',
        b'{"version":2,"size":5,"checksum":"00000000000000000000000000000000"}',
        b'{"version":2,"checksum":5}',
        b"\xff\xfe",
        b'{"version":2,"checksum":"x","deep":' + b"[" * 1000 + b"]" * 1000 + b"}",
        b"[" * 100_000,
    ],
)
def test_invalid_hint_is_ignored(hint: bytes) -> None:
    log = _log_with_checkpoint()
    log.store.put(LAST_CHECKPOINT, hint)
    snapshot = log.snapshot()
    assert snapshot.version == 3
    assert sorted(snapshot.adds["path"].to_pylist()) == ["b", "c"]


def test_hint_to_a_missing_checkpoint_is_ignored() -> None:
    log = _log_with_checkpoint()
    log.store.delete(["_delta_log/00000000000000000002.checkpoint.parquet"])
    assert log.snapshot().segment.checkpoint_version is None


def test_valid_hint_needs_no_old_commits() -> None:
    log = _log_with_checkpoint()
    for v in (0, 1):
        log.store.delete([commit_key(v)])
    assert log.snapshot().segment.checkpoint_version == 2
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        log.snapshot(1)


def test_checkpoint_newer_than_the_hint_is_used() -> None:
    log = _log_with_checkpoint()
    hint = log.store.read(LAST_CHECKPOINT)
    write_checkpoint(log, log.snapshot(3), SYSTEM_RUNTIME)
    log.store.put(LAST_CHECKPOINT, hint)
    assert log.snapshot().segment.checkpoint_version == 3


def test_update_after_log_cleanup() -> None:
    log = _log_with_checkpoint()
    old = log.snapshot(0)
    for v in (0, 1, 2):
        log.store.delete([commit_key(v)])
    assert sorted(log.update(old).adds["path"].to_pylist()) == ["b", "c"]


def test_update_without_new_commits_returns_the_snapshot() -> None:
    log = _log_with_checkpoint()
    snapshot = log.snapshot()
    assert log.update(snapshot) is snapshot


def test_compaction_files_are_read() -> None:
    log = log_of([add("a")], [add("b")], [remove("a")], [add("c")])
    compacted = lines([add("b"), remove("a"), {"commitInfo": {"operation": "x"}}])
    log.store.put(f"_delta_log/{1:020d}.{2:020d}.compacted.json", compacted)
    snapshot = log.snapshot()
    assert [c[:2] for c in snapshot.segment.commits] == [(0, 0), (1, 2), (3, 3)]
    assert sorted(snapshot.adds["path"].to_pylist()) == ["b", "c"]


def test_vanished_commit_is_reported_as_cleaned_up() -> None:
    log = log_of([add("a")])
    segment = log.segment()
    log.store.delete([commit_key(0)])
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        log.read_files([c.key for _, _, c in segment.commits])


def test_log_without_protocol_or_metadata_is_rejected() -> None:
    for kept, lacking in ((protocol(), "metaData"), (metadata(), "protocol")):
        store = MemoryStore()
        store.put(commit_key(0), lines([kept]))
        with pytest.raises(CorruptLogError, match=lacking):
            DeltaLog(store, standard_engine()).snapshot()


# --- listings while others commit ------------------------------------------------------------------------------------


class _Torn(MemoryStore):
    """Hides commits from its next listings, like a local folder listed while they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: list[set[int]] = []

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        hidden = {commit_key(v) for v in (self.hidden.pop(0) if self.hidden else ())}
        return (m for m in super().list(prefix, start_after) if m.key not in hidden)


def _torn(*hidden: set[int]) -> DeltaLog:
    store = _Torn()
    store.put(commit_key(0), lines([protocol(), metadata()]))
    for v in range(1, 8):
        store.put(commit_key(v), lines([add(f"f{v}")]))
    store.hidden = list(hidden)
    return DeltaLog(store)


@pytest.mark.parametrize("hidden", [[{6}], [{3, 6}, {6}], [{2}, {5}, {6}]])
def test_commit_missed_by_a_listing_is_not_a_gap(hidden: list[set[int]]) -> None:
    assert _torn(*hidden).snapshot().version == 7
    assert [v for v, _ in _torn(*hidden).commits()] == list(range(8))
    assert sorted(_torn(*hidden).listing().commits) == list(range(8))


def test_commit_after_a_known_one_is_not_missed() -> None:
    """A stream would miss its rows, and a vacuum would delete the files it restored."""
    assert [v for v, _ in _torn({4}).commits(4)] == [4, 5, 6, 7]
    log = _torn()
    old = log.snapshot(3)
    log.store.hidden = [{4}]  # type: ignore[attr-defined]
    assert log.update(old).adds.num_rows == 7


def test_deleted_commit_is_a_gap() -> None:
    log = _torn()
    log.store.delete([commit_key(4)])
    with pytest.raises(LogGapError) as error:
        log.snapshot()
    assert error.value.context["version"] == 4
    assert [v for v, _ in log.commits(2)] == [2, 3, 5, 6, 7]


@given(st.sets(st.integers(0, 30)), st.none() | st.integers(0, 30))
def test_first_gap_is_the_lowest_missing_version(versions: set[int], first: int | None) -> None:
    versions = {v for v in versions if first is None or v >= first}
    start = min(versions, default=0) if first is None else first
    missing = [v for v in range(start, max(versions, default=0)) if v not in versions]
    assert first_gap(versions, first) == (missing[0] if versions and missing else None)


@pytest.mark.parametrize("key", [commit_key(1), checkpoint_key(2), commit_key(3)])
def test_log_error_names_the_table(key: str) -> None:
    log = log_of([add("a")], [add("b")], [add("c")], [add("d")])
    write_checkpoint(log, log.snapshot(2), SYSTEM_RUNTIME)
    log.store.delete([commit_key(0)])
    log.store.put(key, b"{")
    reads: list[Callable[[], object]]
    reads = [lambda: log.commit_info(1)] if key == commit_key(1) else [log.snapshot, log.head, log.opened]
    for read in reads:
        with pytest.raises(CorruptLogError) as e:
            read()
        assert e.value.context["file"] == f"{log.store.uri}/{key}"
