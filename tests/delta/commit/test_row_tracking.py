"""Row ids and in-commit timestamps are assigned with the final version of a commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, log_of, metadata, protocol, remove, write
from tests.fault_store import FaultStore
from tests.runtimes import runtime_in_ms
from trilake.common.runtime import Runtime
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import State, empty_state
from trilake.delta.protocol.table_features import in_commit_timestamp
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, InvalidArgumentError, ProtocolChangedError, WriteFailedError
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.memory import MemoryStore

TRACKED = {"delta.enableRowTracking": "true"}
TIMED = {"delta.enableInCommitTimestamps": "true"}


def _append(store: Store, count: int, runtime: Runtime | None = None, **request: Any) -> None:
    rows = pa.table({"a": list(range(count))})
    write(DeltaLog(store, standard_engine(runtime=runtime)), rows, **request)


def _ranges(store: Store) -> list[tuple[int, int, int]]:
    """The first id, row count and version of each file."""
    adds = DeltaLog(store, standard_engine()).snapshot().adds.to_pylist()
    return sorted((a["baseRowId"], json.loads(a["stats"])["numRecords"], a["defaultRowCommitVersion"]) for a in adds)


def _mark(store: Store) -> int:
    return row_tracking.high_water_mark(DeltaLog(store, standard_engine()).snapshot().state)


def test_every_file_has_its_own_row_id_range() -> None:
    store = MemoryStore()
    _append(store, 3, properties=TRACKED)
    for count in (2, 4):
        _append(store, count)
    assert _ranges(store) == [(0, 3, 0), (3, 2, 1), (5, 4, 2)]
    assert _mark(store) == 8
    snapshot = DeltaLog(store, standard_engine()).snapshot()
    assert set(snapshot.protocol.writer_features or ()) >= {"rowTracking", "domainMetadata"}
    assert {row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN} <= set(snapshot.metadata.configuration)


def test_concurrent_winner_takes_its_row_ids_first() -> None:
    inner = MemoryStore()
    _append(inner, 3, properties=TRACKED)
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and not done:
            done.append(1)
            _append(inner, 2)

    _append(FaultStore(inner, before=before), 4)
    assert _ranges(inner) == [(0, 3, 0), (3, 2, 1), (5, 4, 2)]
    assert _mark(inner) == 8


@pytest.mark.parametrize("vectors", [False, True])
def test_remaining_rows_keep_their_row_ids(vectors: bool) -> None:
    properties = {**TRACKED, **({"delta.enableDeletionVectors": "true"} if vectors else {})}
    store = MemoryStore()
    _append(store, 5, properties=properties)
    _append(store, 0, mode="overwrite", replace_where="a = 2")
    snapshot = DeltaLog(store, standard_engine()).snapshot()
    (file,) = snapshot.adds.to_pylist()
    names = [snapshot.metadata.configuration[k] for k in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)]
    if vectors:
        assert (file["baseRowId"], file["defaultRowCommitVersion"]) == (0, 0)
        return
    assert file["baseRowId"] == 5  # a new range, used only by rows without a materialized id
    import pyarrow.parquet as pq

    raw = pq.read_table(pa.BufferReader(store.read(file["path"])))
    assert raw[names[0]].to_pylist() == [0, 1, 3, 4]
    assert raw[names[1]].to_pylist() == [0, 0, 0, 0]
    assert trilake.open(store.uri).schema.names == ["a"]
    # Repeat: ids now come from the column.
    _append(store, 0, mode="overwrite", replace_where="a = 3")
    (file,) = DeltaLog(store, standard_engine()).snapshot().adds.to_pylist()
    assert pq.read_table(pa.BufferReader(store.read(file["path"])))[names[0]].to_pylist() == [0, 1, 4]


def test_commits_say_that_they_kept_the_ids() -> None:
    store = MemoryStore()
    _append(store, 3, properties=TRACKED)
    trilake.open(store.uri).update({"a": "a + 10"}, where="a = 1")
    log = DeltaLog(store, standard_engine())
    assert [log.commit_info(v)["tags"] for v in (0, 1)] == [{row_tracking.PRESERVED: "true"}] * 2
    Alter(log).set_properties({row_tracking.ENABLED: "false"})
    assert "tags" not in log.commit_info(2)


def test_suspended_row_tracking_assigns_no_ids() -> None:
    store = MemoryStore()
    _append(store, 3, properties=TRACKED)
    log = DeltaLog(store, standard_engine())
    suspended = {row_tracking.ENABLED: "false", "delta.rowTrackingSuspended": "true"}
    Alter(log).set_properties(suspended)
    _append(store, 2)
    adds = {a["baseRowId"]: a["defaultRowCommitVersion"] for a in log.snapshot().adds.to_pylist()}
    assert adds == {0: 0, None: None}
    assert _mark(store) == 2
    with pytest.raises(InvalidArgumentError, match="cannot both be true"):
        Alter(log).set_properties(TRACKED)
    Alter(log).set_properties({**TRACKED, "delta.rowTrackingSuspended": "false"})
    assert _ranges(store) == [(0, 3, 0), (3, 2, 4)]


def test_columns_with_row_ids_have_reserved_names() -> None:
    store = MemoryStore()
    _append(store, 1, properties=TRACKED)
    log = DeltaLog(store, standard_engine())
    for key in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN):
        name = log.snapshot().metadata.configuration[key]
        with pytest.raises(InvalidArgumentError, match="choose another name"):
            Alter(log).add_columns({name.upper(): "bigint"})


def test_a_replaced_table_keeps_the_names_of_its_columns_with_row_ids() -> None:
    store = MemoryStore()
    _append(store, 3, properties=TRACKED)
    log = DeltaLog(store, standard_engine())
    before = log.snapshot().metadata.configuration
    trilake.create(store.uri, {"b": "bigint"}, mode="replace", properties=TRACKED)
    assert log.snapshot().version == 1
    assert log.snapshot().metadata.configuration == before


def test_file_without_num_records_is_rejected() -> None:
    features = protocol(1, 7, writerFeatures=["rowTracking", "domainMetadata"])
    log = log_of([features, metadata()])
    with pytest.raises(WriteFailedError, match="numRecords"):
        commit(log, log.snapshot(), CommitPlan("ADD", {}, [add("f")], read=ReadSet()))
    plan = CommitPlan("ADD", {}, [add("f", stats='{"numRecords":7}'), remove("g")], read=ReadSet())
    commit(log, log.snapshot(), plan)
    assert row_tracking.high_water_mark(log.snapshot().state) == 6


def test_damaged_high_water_mark_is_an_error() -> None:
    broken = State(
        empty_state().adds, empty_state().removes, domains={row_tracking.DOMAIN: {"configuration": "nonsense"}}
    )
    with pytest.raises(CorruptLogError, match="rowIdHighWaterMark"):
        row_tracking.high_water_mark(broken)


# --- in-commit timestamps --------------------------------------------------------------------------------------------


def _times(store: Store) -> list[int]:
    log = DeltaLog(store, standard_engine())
    infos = [i for _, i in log.parse(log.commits()).of("commitInfo")]
    return [i["inCommitTimestamp"] for i in infos if "inCommitTimestamp" in i]


def test_in_commit_timestamps_never_decrease() -> None:
    store = MemoryStore()
    ticks = iter([1000, 1000, 1000, 500, 500, 2000, 2000])
    last = [0]

    def clock() -> int:
        last[0] = next(ticks, last[0])
        return last[0]

    _append(store, 1, runtime_in_ms(clock), properties=TIMED)
    for _ in range(3):
        _append(store, 1, runtime_in_ms(clock))
    times = _times(store)
    assert len(times) == 4
    assert all(a < b for a, b in pairwise(times))
    first = bytes(store.read("_delta_log/00000000000000000003.json")).split(b"\n")[0]
    assert json.loads(first)["commitInfo"]["inCommitTimestamp"] == times[3]  # in the first line, as readers require


def test_timestamp_follows_a_concurrent_winner() -> None:
    inner = MemoryStore()
    _append(inner, 1, runtime_in_ms(lambda: 1000), properties=TIMED)
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and not done:
            done.append(1)
            _append(inner, 1, runtime_in_ms(lambda: 9000))

    _append(FaultStore(inner, before=before), 1, runtime_in_ms(lambda: 3000))
    assert _times(inner) == [1000, 9000, 9001]


def test_enablement_version_and_timestamp_are_recorded() -> None:
    store = MemoryStore()
    _append(store, 1)
    log = DeltaLog(store, standard_engine())
    from dataclasses import replace

    from trilake.delta.protocol.features import upgraded

    base = log.snapshot()
    new = replace(base.metadata, configuration=TIMED)
    plan = CommitPlan("SET TBLPROPERTIES", {}, [], metadata=new, protocol=upgraded(base.protocol, new))
    commit(log, base, plan)
    configuration = log.snapshot().metadata.configuration
    assert configuration[in_commit_timestamp.SINCE_VERSION] == "1"
    assert configuration[in_commit_timestamp.SINCE_TIME] == str(_times(store)[0])
    _append(store, 1)
    assert len(_times(store)) == 2
    assert trilake.open(store.uri).history().num_rows == 3


def test_replaced_table_keeps_the_enablement_version() -> None:
    """It claimed in-commit timestamps for all commits, but the older ones have none."""
    store = MemoryStore()
    for _ in range(2):
        _append(store, 1)
    Alter(DeltaLog(store, standard_engine())).set_properties(TIMED)

    def since() -> dict[str, str]:
        marks = (in_commit_timestamp.SINCE_VERSION, in_commit_timestamp.SINCE_TIME)
        return {k: v for k, v in DeltaLog(store, standard_engine()).head().metadata.configuration.items() if k in marks}

    first = since()
    assert first[in_commit_timestamp.SINCE_VERSION] == "2"
    trilake.create(store.uri, {"b": "int"}, mode="replace", properties=TIMED)
    assert since() == first
    trilake.create(store.uri, {"b": "int"}, mode="replace")
    assert since() == {}
    trilake.create(store.uri, {"b": "int"}, mode="replace", properties=TIMED)
    assert since()[in_commit_timestamp.SINCE_VERSION] == "5"


class _DropsBeforeCommit(MemoryStore):
    """A store in which another writer drops row tracking right before a version is committed."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.before, self.dropped = before, False

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        at = f"_delta_log/{self.before:020d}.json"
        if key == at and not self.dropped:
            self.dropped = True
            Alter(DeltaLog(self, standard_engine())).drop_feature("rowTracking")
        super().put_if_absent(key, data)


@pytest.mark.parametrize("before", [2, 3])
def test_concurrent_drop_of_row_tracking_is_retried(before: int) -> None:
    store = _DropsBeforeCommit(before)
    _append(store, 3)
    Alter(DeltaLog(store, standard_engine())).set_properties(TRACKED)
    assert store.dropped
    assert _ranges(store) == [(0, 3, DeltaLog(store, standard_engine()).head().version - 1)]
    assert _mark(store) == 2


class _AlwaysDrops(MemoryStore):
    """A store in which row tracking is dropped as soon as it is added."""

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        super().put_if_absent(key, data)
        if key.endswith(".json") and row_tracking.supported(DeltaLog(self, standard_engine()).head().protocol):
            Alter(DeltaLog(self, standard_engine())).drop_feature("rowTracking")


def test_repeated_drop_of_row_tracking_is_an_error() -> None:
    store = _AlwaysDrops()
    _append(store, 3)
    with pytest.raises(ProtocolChangedError, match="dropped the feature rowTracking"):
        Alter(DeltaLog(store, standard_engine())).set_properties(TRACKED)
    assert "delta.enableRowTracking" not in DeltaLog(store, standard_engine()).head().metadata.configuration


class _DropsBetweenReads(MemoryStore):
    """A store in which row tracking is dropped between the first and the second listing."""

    looks = -1

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        self.looks -= 1
        if self.looks == 0:
            Alter(DeltaLog(self, standard_engine())).drop_feature("rowTracking")
        return super().list(prefix, start_after)


def test_row_tracking_is_never_enabled_without_ids() -> None:
    store = _DropsBetweenReads()
    _append(store, 3, properties=TRACKED)
    store.looks = 2
    Alter(DeltaLog(store, standard_engine())).set_properties(TRACKED)
    store.looks = -1
    snapshot = DeltaLog(store, standard_engine()).snapshot()
    on = snapshot.metadata.configuration.get("delta.enableRowTracking") == "true"
    assert on <= (not snapshot.adds["baseRowId"].null_count)
