"""A table as a stream: commits at which it stops, and files that are gone."""

from __future__ import annotations

import json

import pytest

from tests.delta.stream.streams import ALL, everything, paths, reading, stream
from tests.delta.tables import Action, add, lines, log_of, metadata, protocol, remove
from tests.runtimes import runtime_in_ms
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.actions import Metadata
from trilake.delta.stream.errors import (
    StreamRowsChangedError,
    StreamSchemaChangedError,
    StreamSchemaIncompatibleError,
)
from trilake.delta.stream.offset import Limit, StreamOffset
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream
from trilake.errors import UnsupportedProtocolError, VersionNotFoundError
from trilake.table.streams import StreamDataLossError

LONG_AB = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("a", "b")],
    }
)


# --- commits at which a stream stops ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "options", "expected"),
    [
        ([remove("a")], {}, None),
        ([remove("a")], {"ignore_deletes": True}, ["a", "z"]),
        ([remove("a")], {"ignore_changes": True}, ["a", "z"]),
        ([remove("a")], {"skip_change_commits": True}, ["a", "z"]),
        ([remove("a"), add("b")], {"ignore_deletes": True}, None),
        ([remove("a"), add("b")], {"ignore_changes": True}, ["a", "b", "z"]),
        ([remove("a"), add("b")], {"skip_change_commits": True}, ["a", "z"]),
        ([remove("a", dataChange=False), add("b", dataChange=False)], {}, ["a", "z"]),
    ],
)
def test_commits_that_remove_rows(actions: list[Action], options: dict[str, bool], expected: list[str] | None) -> None:
    log = log_of([add("a")], actions, [add("z")])
    source = stream(log, starting_version=0, **options)
    if expected is not None:
        assert everything(source) == expected
        return
    first = source.latest(source.initial(), Limit())
    assert paths(source, source.initial(), first) == ["a"]
    with pytest.raises(StreamRowsChangedError, match="version: 1") as e:
        source.latest(first)
    assert "skipChangeCommits" in str(e.value) or "ignoreDeletes" in str(e.value)


def test_new_column_stops_the_stream_until_restart() -> None:
    log = log_of([add("a")])
    read = reading(log)
    log.store.put(commit_key(1), lines([metadata(LONG_AB), add("b")]))
    source = stream(log, read, starting_version=0)
    first = source.latest(source.initial())
    assert paths(source, source.initial(), first) == ["a"]
    with pytest.raises(StreamSchemaChangedError, match="column b was added"):
        source.latest(first)
    assert everything(stream(log, starting_version=0), first) == ["b"]
    # A selection of columns ignores a new column.
    assert everything(stream(log, Reading(read.metadata, 0, ("a",)), starting_version=0)) == ["a", "b"]


def test_stream_declared_before_a_schema_change_fails() -> None:
    log = log_of([add("a")])
    read = reading(log)
    log.store.put(commit_key(1), lines([metadata(LONG_AB), add("b")]))
    with pytest.raises(StreamSchemaChangedError):
        stream(log, read).initial()
    log.store.put(commit_key(2), lines([add("c")]))
    behind = stream(log).initial().at(2)
    with pytest.raises(StreamSchemaChangedError):
        stream(log, read).latest(behind)


def test_property_or_comment_does_not_stop_the_stream() -> None:
    commented = LONG_AB.replace('"metadata": {}', '"metadata": {"comment": "x"}').replace("true", "false")
    log = log_of([metadata(LONG_AB), add("a")])
    read = reading(log)
    log.store.put(commit_key(1), lines([metadata(commented, delta__logRetentionDuration="1 day"), add("b")]))
    assert everything(stream(log, read, starting_version=0)) == ["a", "b"]


def test_type_changes_stop_the_stream() -> None:
    def typed(name: str) -> str:
        return LONG_AB.replace('"long"', f'"{name}"')

    log = log_of([metadata(typed("integer")), add("a")], [metadata(typed("long")), add("b")])
    narrow = Reading(Metadata.from_json(metadata(typed("integer"))["metaData"]), 0)
    with pytest.raises(StreamSchemaChangedError, match="was integer and is long"):
        everything(stream(log, narrow, starting_version=0))
    assert everything(stream(log, starting_version=0)) == ["a", "b"]  # older files are cast to the wider type
    log.store.put(commit_key(2), lines([metadata(typed("string")), add("c")]))
    with pytest.raises(StreamSchemaIncompatibleError, match="its type was long and is string"):
        everything(stream(log), StreamOffset("table-id", 2))


def test_replaced_column_is_not_read_as_nulls() -> None:
    def mapped(physical: str) -> Action:
        fields = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1}
        schema = LONG_AB.replace('"metadata": {}', f'"metadata": {json.dumps(fields)}', 1)
        return metadata(schema, delta__columnMapping__mode="name")

    log = log_of([protocol(2, 5), mapped("col-1"), add("a")], [mapped("col-2"), add("b")])
    with pytest.raises(StreamSchemaIncompatibleError, match="column a is a different column of the same name"):
        everything(stream(log), StreamOffset("table-id", 1))
    first = stream(log, Reading(log.head(0).metadata, 0), starting_version=0)
    with pytest.raises(StreamSchemaChangedError, match="column a was replaced"):
        everything(first)


def test_unknown_protocol_stops_the_stream() -> None:
    log = log_of([add("a")])
    read = reading(log)
    source = stream(log, read, starting_version=0)
    start = source.initial()
    end = source.latest(start)
    log.store.put(commit_key(1), lines([protocol(3, 7, readerFeatures=["x"], writerFeatures=["x"]), add("b")]))
    with pytest.raises(UnsupportedProtocolError):
        source.latest(end)


# --- missing files and versions --------------------------------------------------------------------------------------


def _overtaken() -> DeltaLog:
    log = log_of(*([add(f"f{i}")] for i in range(6)))
    write_checkpoint(log, log.snapshot(3), SYSTEM_RUNTIME)
    log.store.delete([commit_key(v) for v in range(4)])
    return log


def test_log_cleanup_ahead_of_the_stream_is_data_loss() -> None:
    log = _overtaken()
    old = StreamOffset("table-id", 1)
    with pytest.raises(StreamDataLossError, match="version 1, which is no longer in the log") as e:
        stream(log).latest(old)
    assert "oldest commit is version 4" in str(e.value)
    with pytest.raises(StreamDataLossError):
        stream(log).batch(old, old.at(5))
    assert everything(stream(log, fail_on_data_loss=False), old) == ["f4", "f5"]
    with pytest.raises(StreamDataLossError, match="not read all rows of version 1"):
        stream(log).latest(StreamOffset("table-id", 1, 0, True))
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        stream(log, starting_version=2).initial()
    assert everything(stream(log), StreamOffset("table-id", 4)) == ["f4", "f5"]


def test_offset_advances_over_commits_without_rows() -> None:
    log = log_of([add("a")])
    source = stream(log)
    start = source.latest(source.initial())
    for v in range(1, 4):
        log.store.put(commit_key(v), lines([{"txn": {"appId": "q", "version": v}}]))
    assert source.latest(start) == start
    late = runtime_in_ms(lambda: 10**13)
    assert DeltaStream(log, reading(log), ALL, late).latest(start) == start.at(4)
    for v in range(4, 12):
        log.store.put(commit_key(v), lines([{"txn": {"appId": "q", "version": v}}]))
    end = source.latest(start)
    assert end == start.at(12)
    assert paths(source, start, end) == []
