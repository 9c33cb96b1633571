"""A table as a stream: every file once and in order, in batches of any size, resumed from any offset."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delta.stream.streams import everything, paths, reading, stream
from tests.delta.tables import Action, add, lines, log_of, metadata, remove
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.scan.changes import ChangeFeedTask, plan_changes
from trilake.delta.stream.errors import StreamOffsetError, StreamRowsChangedError
from trilake.delta.stream.offset import Limit, StreamOffset
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.source import DeltaStream
from trilake.errors import ChangeFeedError, InvalidArgumentError, VersionNotFoundError
from trilake.storage.memory import MemoryStore

# --- random histories ------------------------------------------------------------------------------------------------


@dataclass
class History:
    """Commits, and the files that a stream over them must deliver."""

    options: StreamOptions
    live: dict[str, int] = field(default_factory=dict)
    commits: list[list[Action]] = field(default_factory=list)
    #: Paths that each commit adds to the stream; ``None`` for a commit at which the stream must stop.
    delivered: list[list[str] | None] = field(default_factory=list)
    names: Any = field(default_factory=count)

    def _add(self, time: int, size: int, **fields: Any) -> Action:
        path = f"f{next(self.names)}"
        self.live[path] = time
        return add(path, modificationTime=time, size=size, **fields)

    def append(self, sizes: list[int]) -> None:
        adds = [self._add(size % 3, size) for size in sizes]
        self._commit(adds, [a["add"]["path"] for a in adds])

    def optimize(self) -> None:
        gone = list(self.live)[:2]
        actions: list[Action] = [remove(p, dataChange=False) for p in gone]
        for p in gone:
            del self.live[p]
        self._commit([*actions, self._add(9, 50, dataChange=False)], [])

    def delete(self) -> None:
        gone = list(self.live)[:1]
        for p in gone:
            del self.live[p]
        passed = self.options.ignore_deletes or self.options.ignore_changes or self.options.skip_change_commits
        self._commit([remove(p) for p in gone], [] if passed or not gone else None)

    def update(self) -> None:
        gone = list(self.live)[:1]
        new = self._add(1, 7)
        for p in gone:
            del self.live[p]
        brought: list[str] | None = [new["add"]["path"]]
        if gone and self.options.skip_change_commits:
            brought = []
        elif gone and not self.options.ignore_changes:
            brought = None
        self._commit([*(remove(p) for p in gone), new], brought)

    def only_txn(self) -> None:
        self._commit([{"txn": {"appId": "q", "version": 1}}], [])

    def _commit(self, actions: list[Action], delivered: list[str] | None) -> None:
        self.commits.append([*actions, {"txn": {"appId": "history", "version": len(self.commits)}}])
        self.delivered.append(delivered)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(1, 9), min_size=1, max_size=5)),
        st.tuples(st.sampled_from(["optimize", "delete", "update", "only_txn"])),
    ),
    min_size=1,
    max_size=12,
)
FLAGS = st.fixed_dictionaries({n: st.booleans() for n in ("ignore_deletes", "ignore_changes", "skip_change_commits")})
LIMITS = st.builds(Limit, st.none() | st.integers(1, 4), st.none() | st.integers(1, 20))


@given(operations=OPERATIONS, flags=FLAGS, begin=st.integers(0, 11), snapshot=st.booleans(), data=st.data())
def test_every_file_is_read_once_and_in_order(
    operations: list[Any], flags: dict[str, bool], begin: int, snapshot: bool, data: st.DataObject
) -> None:
    """Commits appear while the stream runs, batches have any limit, and every batch may be the first of a process and
    may be requested twice."""
    history = History(StreamOptions(max_files=None, **flags))
    states = []
    for name, *arguments in operations:
        getattr(history, name)(*arguments)
        states.append(dict(history.live))
    begin = min(begin, len(history.commits) - 1)
    options = history.options if snapshot else replace(history.options, starting_version=begin)
    log = log_of(*history.commits[: begin + 1])
    expected: list[str] = []
    if snapshot:
        expected += [p for p, t in sorted(states[begin].items(), key=lambda i: (i[1], i[0]))]
    stop = None
    for version in range(begin + 1 if snapshot else begin, len(history.commits)):
        brought = history.delivered[version]
        if brought is None:
            stop = version
            break
        expected += brought
    read = reading(log)
    result = DeltaStream(log, read, options)
    start, got, written, stopped = result.initial(), [], begin + 1, None
    while True:
        if written < len(history.commits) and data.draw(st.booleans(), label="commit"):
            log.store.put(commit_key(written), lines(history.commits[written]))
            written += 1
        if data.draw(st.booleans(), label="restart"):
            result = DeltaStream(log, read, options)
        limit = data.draw(LIMITS, label="limit")
        try:
            end = result.latest(start, limit)
        except StreamRowsChangedError as e:
            stopped = e.context["version"]
            break
        assert StreamOffset.from_json(json.loads(json.dumps(end.to_json()))) == end
        brought = paths(result, start, end)
        assert paths(DeltaStream(log, read, options), start, end) == brought
        assert limit.files is None or len(brought) <= limit.files
        got += brought
        if end == start and written == len(history.commits):
            break
        assert end.position >= start.position
        start = end
    assert got == expected
    assert stopped == stop


def test_byte_limit_is_soft() -> None:
    log = log_of([add("a", size=10), add("b", size=10), add("c", size=10)])
    source = stream(log)
    first = source.latest(source.initial(), Limit(None, 11))
    assert paths(source, source.initial(), first) == ["a", "b"]
    assert paths(source, first, source.latest(first, Limit(None, 1))) == ["c"]


def test_whole_snapshot_is_one_batch() -> None:
    log = log_of([add("a"), add("b"), add("c")])
    source = stream(log, whole_snapshot=True)
    first = source.latest(source.initial(), Limit(1))
    assert paths(source, source.initial(), first) == ["a", "b", "c"]
    log.store.put(commit_key(1), lines([add("d"), add("e")]))
    second = source.latest(first, Limit(1))
    assert paths(source, first, second) == ["d"]


def test_repeated_first_batch_ignores_later_commits() -> None:
    """Spark requests the first offset again if the first batch did not finish."""
    for options in ({}, {"starting_version": "latest"}):
        log = log_of([add("a")])
        read = reading(log)
        source = stream(log, read, **options)
        start = source.initial()
        log.store.put(commit_key(1), lines([add("b")]))
        end = source.latest(start)
        before = paths(source, start, end)
        assert before == (["b"] if options else ["a", "b"])
        log.store.put(commit_key(2), lines([add("c")]))
        again = stream(log, read, **options)
        today = again.initial()
        assert today != start
        assert paths(again, today, end) == before
        assert everything(again, end) == ["c"]


def test_offsets_of_delta_spark_are_accepted() -> None:
    log = log_of([add("a")], [add("b")], [add("c")])
    source = stream(log)
    theirs = {
        "sourceVersion": 3,
        "reservoirId": "table-id",
        "reservoirVersion": 1,
        "index": -100,
        "isStartingVersion": False,
    }
    offset = StreamOffset.from_json(theirs)
    assert everything(source, offset) == ["b", "c"]
    # The first batch, to be repeated: it began with the snapshot before its end.
    assert paths(source, source.initial(), offset) == ["a"]


@pytest.mark.parametrize(
    "offset",
    [{}, {"v": 1}, {"reservoirId": "x", "reservoirVersion": "?", "index": 0}, None, [], {"sourceVersion": 9}],
)
def test_invalid_offset_is_an_error(offset: Any) -> None:
    with pytest.raises(StreamOffsetError):
        StreamOffset.from_json(offset)


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (4, "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION"),
        (0, "DELTA_INVALID_SOURCE_VERSION"),
        (None, "DELTA_INVALID_SOURCE_VERSION"),
        ("foo", "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
    ],
)
def test_unknown_offset_format_is_an_error(source: Any, condition: str) -> None:
    offset = {"reservoirId": "x", "reservoirVersion": 1, "index": 1, "isStartingVersion": True, "sourceVersion": source}
    with pytest.raises(StreamOffsetError) as caught:
        StreamOffset.from_json({k: v for k, v in offset.items() if v is not None})
    assert caught.value.context["condition"] == condition


def test_checkpoint_of_another_table_is_rejected() -> None:
    log = log_of([add("a")])
    other = replace(stream(log).initial(), reservoir_id="another")
    with pytest.raises(StreamOffsetError, match="id another"):
        stream(log).latest(other)
    ahead = stream(log).initial().at(7)
    with pytest.raises(StreamOffsetError, match="newest version of the table is 0"):
        stream(log).latest(ahead)


# --- starting point --------------------------------------------------------------------------------------------------


def test_starting_points() -> None:
    log = log_of([add("a")], [add("b")], [add("c")])
    assert everything(stream(log)) == ["a", "b", "c"]
    assert everything(stream(log, starting_version=1)) == ["b", "c"]
    source = stream(log, starting_version="latest")
    assert everything(source) == []
    log.store.put(commit_key(3), lines([add("d")]))
    assert everything(source) == ["d"]
    time = log.commit_times(log.commits(), log.head().metadata)[2]
    assert everything(stream(log, starting_timestamp_ms=time)) == ["c", "d"]
    with pytest.raises(VersionNotFoundError, match="version 9, which does not exist"):
        stream(log, starting_version=9).initial()
    with pytest.raises(VersionNotFoundError):
        stream(log, starting_timestamp_ms=10**15).initial()


def test_available_now_ignores_later_commits() -> None:
    log = log_of([add("a")], [add("b")])
    source = stream(log)
    source.stop_at_newest()
    log.store.put(commit_key(2), lines([add("c")]))
    assert everything(source) == ["a", "b"]
    assert everything(stream(log, starting_version=0)) == ["a", "b", "c"]


def test_files_are_excluded_by_path() -> None:
    log = log_of([add("x/a"), add("y/b")], [add("x/c"), add("y/d")], [add("x/e")])
    assert everything(stream(log, exclude="^x/")) == ["y/b", "y/d"]
    assert everything(stream(log, exclude="^x/", starting_version=1)) == ["y/d"]
    with pytest.raises(InvalidArgumentError, match="excludeRegex"):
        everything(stream(log, exclude="("))


# --- change feed -----------------------------------------------------------------------------------------------------


def _feed() -> DeltaLog:
    on = metadata(delta__enableChangeDataFeed="true")
    return log_of([on, add("a")], [remove("a", partitionValues={}), add("b")], [add("c"), add("d")])


def changes(result: DeltaStream, start: StreamOffset, end: StreamOffset) -> list[tuple[int, str | None, str]]:
    tasks = result.batch(start, end).tasks
    return [(t.version, t.change_type, t.file.path) for t in tasks if isinstance(t, ChangeFeedTask)]


def test_change_feed_batches_end_at_commits() -> None:
    source = stream(_feed(), starting_version=0, read_change_feed=True)
    start = source.initial()
    first = source.latest(start, Limit(2))
    assert first == start.at(2)
    assert changes(source, start, first) == [(0, "insert", "a"), (1, "insert", "b"), (1, "delete", "a")]
    last = source.latest(first, Limit(1))
    assert changes(source, first, last) == [(2, "insert", "c"), (2, "insert", "d")]
    assert source.latest(last) == last


def test_change_feed_starts_with_the_existing_rows() -> None:
    log = _feed()
    source = stream(log, read_change_feed=True)
    start = source.initial()
    one = source.latest(start, Limit(1))
    assert changes(source, start, one) == [(2, "insert", "b")]
    end = source.latest(one)
    assert changes(source, one, end) == [(2, "insert", "c"), (2, "insert", "d")]
    off = metadata(delta__enableChangeDataFeed="false")
    log.store.put(commit_key(3), lines([off, add("e")]))
    with pytest.raises(ChangeFeedError, match="not recorded from version 3"):
        source.latest(end)
    with pytest.raises(ChangeFeedError):
        stream(log, read_change_feed=True).initial()


def test_change_feed_cannot_start_while_disabled() -> None:
    on = metadata(delta__enableChangeDataFeed="true")
    log = log_of([metadata(), add("a")], [remove("a", partitionValues={}), add("b")], [on], [add("c")])
    for version in (0, 1):
        with pytest.raises(ChangeFeedError, match=f"not recorded from version {version}"):
            stream(log, starting_version=version, read_change_feed=True).initial()
        assert stream(log, starting_version=version).initial().reservoir_version == version
    source = stream(log, starting_version=2, read_change_feed=True)
    start = source.initial()
    assert changes(source, start, source.latest(start)) == [(3, "insert", "c")]


def test_change_times_match_a_batch_read() -> None:
    """A stream adjusts commit times that go backwards over all commits, not per batch."""
    now = iter(range(9000, 0, -1000))
    store = MemoryStore(clock=lambda: next(now))
    on = metadata(delta__enableChangeDataFeed="true")
    stated = metadata(
        delta__enableChangeDataFeed="true",
        delta__enableInCommitTimestamps="true",
        delta__inCommitTimestampEnablementVersion="3",
    )
    log = log_of([on, add("a")], [add("b")], [add("c")], store=store)
    source = stream(log, starting_version=0, read_change_feed=True)
    for version, actions in ((3, [stated, add("d")]), (4, [add("e")])):
        info = {"commitInfo": {"inCommitTimestamp": 20_000 + version}}
        store.put(commit_key(version), lines([info, *actions]))
    place, times = source.initial(), []
    while (end := source.latest(place, Limit(1))) != place:
        times += [t.timestamp_ms for t in source.batch(place, end).tasks if isinstance(t, ChangeFeedTask)]
        place = end
    assert times == [t.timestamp_ms for t in plan_changes(log, 0).tasks] == [9000, 9001, 9002, 20_003, 20_004]


def test_stream_may_start_beyond_the_newest_version() -> None:
    log = log_of([add("a")])
    for late in (stream(log, starting_version=3), stream(log, starting_timestamp_ms=1 << 42)):
        with pytest.raises(VersionNotFoundError):
            late.initial()
    assert stream(log, starting_timestamp_ms=1 << 42, beyond_newest=True).initial().reservoir_version == 1
    source = stream(log, starting_version=3, beyond_newest=True)
    start = source.initial()
    for version, path in enumerate("bcd", 1):
        for again in (source, stream(log, starting_version=3, beyond_newest=True)):
            assert again.latest(start) == start
        log.store.put(commit_key(version), lines([add(path)]))
    assert everything(source, start) == everything(stream(log, starting_version=3), start) == ["d"]


# --- options ---------------------------------------------------------------------------------------------------------


def test_options_have_delta_names_and_defaults() -> None:
    assert StreamOptions.parse({}) == StreamOptions(max_files=1000)
    result = StreamOptions.parse({"maxBytesPerTrigger": "1k", "skipChangeCommits": "TRUE", "startingVersion": "3"})
    assert result == StreamOptions(starting_version=3, max_files=None, max_bytes=1024, skip_change_commits=True)
    assert StreamOptions.parse({"startingTimestamp": "1970-01-01T00:00:01Z"}).starting_timestamp_ms == 1000
    assert StreamOptions.parse({"ignoreFileDeletion": "true"}) == StreamOptions.parse({"ignoreChanges": "true"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"startingVersion": "1", "startingTimestamp": "2020-01-01"},
        {"startingVersion": "-1"},
        {"maxFilesPerTrigger": "0"},
        {"maxBytesPerTrigger": "many"},
        {"ignoreDeletes": "perhaps"},
        {"startingTimestamp": "soon"},
    ],
)
def test_invalid_options_are_rejected(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError) as e:
        StreamOptions.parse(wrong)
    if wrong.keys() == {"startingTimestamp"}:
        assert e.value.condition == "DELTA_TIMESTAMP_INVALID"
