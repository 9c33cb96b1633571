"""Dropping table features: what prevents it, what is disabled, and the resulting table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.commands.alter import sparkle
from tests.delta.tables import clocked, new_uri, rows, with_runtime
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.alter.metadata_commits import history_trace, oldest_version, removable
from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS
from trilake.delta.protocol import features
from trilake.delta.protocol.actions import Protocol
from trilake.delta.protocol.features import REGISTRY, has_feature
from trilake.delta.protocol.properties import known_properties
from trilake.delta.standard import standard_engine
from trilake.errors import (
    FeatureInUseError,
    InvalidArgumentError,
    TrilakeError,
    UnknownOptionError,
    UnsupportedProtocolError,
)
from trilake.storage import open_store


class Case:
    """A table in memory with one ``Alter`` for now and one for three days later."""

    def __init__(self, data: pa.Table | None = None, **properties: str) -> None:
        self.uri = new_uri()
        self.log = DeltaLog(open_store(self.uri), standard_engine())
        data = pa.table({"id": [1, 2], "p": ["u", "v"]}) if data is None else data
        trilake.write(data, self.uri, properties={f"delta.{k.replace('__', '.')}": v for k, v in properties.items()})
        self.alter = Alter(self.log)
        now = SYSTEM_RUNTIME.clock_ms()
        self.later = Alter(clocked(self.log, lambda: now + 3 * DAY_MS))

    @property
    def protocol(self) -> Protocol:
        return self.log.head().protocol

    @property
    def configuration(self) -> dict[str, str]:
        return dict(self.log.head().metadata.configuration)

    def delete(self, where: str) -> None:
        empty = trilake.open(self.uri).schema.empty_table()
        trilake.write(empty, self.uri, mode="overwrite", replace_where=where)

    def ids(self) -> list[int]:
        return sorted(trilake.open(self.uri).to_arrow()["id"].to_pylist())

    def last(self) -> dict[str, Any]:
        return self.log.commit_info(self.log.head().version)


def test_every_supported_feature_can_be_dropped() -> None:
    assert {n for n, f in REGISTRY.items() if f.removal} == {n for n, f in REGISTRY.items() if f.reads and f.writes}


@pytest.mark.parametrize(
    "name", sorted(n for n, f in REGISTRY.items() if f.writes and n not in ("appendOnly", "invariants"))
)
def test_unused_feature_can_be_added_and_dropped(name: str) -> None:
    t = Case()
    t.alter.add_feature(name)
    assert has_feature(t.protocol, name)
    t.alter.drop_feature(name.upper())
    assert not has_feature(t.protocol, name)
    assert t.last()["operation"] == "DROP FEATURE"
    assert t.last()["operationParameters"] == {"featureName": name, "truncateHistory": "false"}
    if not REGISTRY[name].legacy and not REGISTRY[name].needs:
        assert t.protocol == Protocol(1, 2)


def test_new_feature_needs_only_one_file_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fictional feature is rejected without its row; with it, a property enables it, writers keep it, and it can be
    dropped unless it is in use."""
    t, unused = Case(), Case()
    with pytest.raises(UnknownOptionError, match=r"delta\.enableSparkle"):
        t.alter.set_properties({sparkle.KEY: "true"})
    with pytest.raises(UnsupportedProtocolError, match="sparkle"):
        t.alter.add_feature("sparkle")
    monkeypatch.setattr(features, "REGISTRY", {**REGISTRY, "sparkle": sparkle.FEATURE})
    assert known_properties()[sparkle.KEY].default == "false"
    with pytest.raises(InvalidArgumentError, match="true or false"):
        t.alter.set_properties({sparkle.KEY: "maybe"})
    for case in t, unused:
        case.alter.set_properties({"delta.enablesparkle": "TRUE"})
        assert case.configuration[sparkle.KEY] == "true"
        assert case.log.head().properties.is_on(sparkle.KEY)
        assert has_feature(case.protocol, "sparkle")
        assert case.protocol.min_reader_version == 3
        assert "sparkle" in (case.protocol.reader_features or ())
    trilake.write(pa.table({"id": pa.array([9], pa.int64())}), t.uri, mode="append")
    t.alter.add_columns({"sparkle": "string"})
    with pytest.raises(FeatureInUseError, match="columns sparkle: sparkle"):
        t.alter.drop_feature("sparkle")
    assert sparkle.KEY not in t.configuration, "it is turned off first"
    unused.alter.drop_feature("sparkle")
    assert sparkle.KEY not in unused.configuration
    assert unused.protocol == Protocol(1, 2)
    monkeypatch.setattr(features, "REGISTRY", REGISTRY)
    with pytest.raises(UnsupportedProtocolError, match="sparkle"):
        trilake.open(t.uri)
    assert trilake.open(unused.uri).count() == len(unused.ids())


def test_missing_unknown_or_required_feature_is_not_dropped() -> None:
    t = Case(enableRowTracking="true")
    for name, error, says in [
        ("clustering", InvalidArgumentError, "does not have"),
        ("magic", UnsupportedProtocolError, "unknown"),
        ("domainMetadata", FeatureInUseError, "required by rowTracking"),
    ]:
        with pytest.raises(error, match=says):
            t.alter.drop_feature(name)
    assert t.log.head().version == 0


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"appendOnly": "true"}, "appendOnly"),
        ({"enableChangeDataFeed": "true"}, "changeDataFeed"),
        ({"enableInCommitTimestamps": "true"}, "inCommitTimestamp"),
        ({"enableRowTracking": "true"}, "rowTracking"),
    ],
)
def test_writer_feature_is_disabled_and_dropped_in_one_commit(properties: dict[str, str], name: str) -> None:
    t = Case(**properties)
    version = t.alter.drop_feature(name)
    assert version == 1
    assert not has_feature(t.protocol, name)
    assert t.configuration == {}
    assert trilake.open(t.uri).to_arrow().num_rows == 2
    trilake.write(pa.table({"id": [3]}), t.uri, mode="append")


def test_dropping_row_tracking_clears_row_ids() -> None:
    t = Case(enableRowTracking="true")
    assert t.log.snapshot().adds["baseRowId"].null_count == 0
    t.alter.drop_feature("rowTracking")
    snapshot = t.log.snapshot()
    assert snapshot.adds["baseRowId"].null_count == snapshot.adds.num_rows == 1
    assert snapshot.adds["dataChange"].to_pylist() == [False]
    assert not [d for d, v in snapshot.state.domains.items() if not v.get("removed")]
    t.alter.drop_feature("domainMetadata")
    assert t.protocol == Protocol(1, 2)


def test_row_tracking_of_an_empty_table_can_be_dropped() -> None:
    t = Case(enableRowTracking="true")
    trilake.open(t.uri).delete()
    t.alter.drop_feature("rowTracking")
    assert not has_feature(t.protocol, "rowTracking")


def test_feature_with_rules_in_use_is_not_dropped() -> None:
    t = Case()
    t.alter.add_constraint("c", "id > 0")
    t.alter.set_not_null("id")
    t.alter.set_default("p", "'x'")
    for name, says in [("checkConstraints", "c"), ("invariants", "id"), ("allowColumnDefaults", "p")]:
        with pytest.raises(FeatureInUseError, match=rf"{name} cannot be dropped.*{says}"):
            t.alter.drop_feature(name)
    t.alter.drop_constraint("c")
    t.alter.set_nullable("id")
    t.alter.drop_default("p")
    for name in ("checkConstraints", "allowColumnDefaults"):
        t.alter.drop_feature(name)
    assert t.protocol == Protocol(1, 2)
    t.alter.drop_feature("invariants")
    assert t.protocol == Protocol(1, 7, None, ("appendOnly",))


def test_type_feature_needs_its_history_truncated() -> None:
    t = Case(pa.table({"id": [1], "t": pa.array([0], pa.timestamp("us"))}), columnMapping__mode="name")
    with pytest.raises(FeatureInUseError, match="columns are of type timestamp_ntz: t"):
        t.alter.drop_feature("timestampNtz")
    t.alter.drop_columns("t")
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("timestampNtz")
    # Too recent to be cleaned up.
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("timestampNtz", truncate_history=True)
    t.later.drop_feature("timestampNtz", truncate_history=True)
    assert oldest_version(t.log) > 0
    assert t.last()["operationParameters"]["truncateHistory"] == "true"
    assert not has_feature(t.protocol, "timestampNtz")
    assert trilake.open(t.uri).to_arrow().to_pylist() == [{"id": 1}]


def test_unused_deletion_vectors_can_be_dropped() -> None:
    t = Case(enableDeletionVectors="true")
    t.alter.drop_feature("deletionVectors")
    assert t.protocol == Protocol(1, 2)
    assert t.configuration == {}
    operations = [t.log.commit_info(v)["operation"] for v in range(3)]
    assert operations == ["WRITE", "UNSET TBLPROPERTIES", "DROP FEATURE"]


def test_dropping_deletion_vectors_purges_them() -> None:
    t = Case(enableDeletionVectors="true")
    trilake.write(pa.table({"id": [3, 4], "p": ["w", "x"]}), t.uri, mode="append")
    t.delete("id = 1")
    assert t.log.snapshot().adds["deletionVector"].null_count == 1
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("deletionVectors")
    assert "delta.enableDeletionVectors" not in t.configuration
    assert has_feature(t.protocol, "deletionVectors")
    operations = [t.log.commit_info(v)["operation"] for v in range(3, 6)]
    assert operations == ["UNSET TBLPROPERTIES", "REORG", "Empty Commit"]
    assert t.log.snapshot().adds["deletionVector"].null_count == 2
    removal = REGISTRY["deletionVectors"].removal
    assert removal is not None
    assert history_trace(t.log, removal) is not None
    t.later.drop_feature("deletionVectors", truncate_history=True)
    assert not has_feature(t.protocol, "deletionVectors")
    assert t.ids() == [2, 3, 4]


def test_purge_is_retried_after_a_concurrent_delete() -> None:
    """A file rewritten concurrently leaves nothing to purge, or is purged later."""
    t = Case(enableDeletionVectors="true")
    t.delete("id = 1")
    once = [1]

    def run(function: Any, tasks: Any) -> Any:
        result = list(run_here(function, tasks))
        if once:
            once.clear()
            t.delete("id = 2")
        return result

    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        Alter(t.log, run=run).drop_feature("deletionVectors")
    assert t.ids() == []


def test_column_mapping_with_original_names_can_be_dropped() -> None:
    t = Case()
    t.alter.set_properties({"delta.columnMapping.mode": "name"})
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("columnMapping")
    write_checkpoint(t.log, t.log.snapshot(), SYSTEM_RUNTIME)
    t.later.drop_feature("columnMapping", truncate_history=True)
    head = t.log.head()
    assert (head.protocol, dict(head.metadata.configuration)) == (Protocol(1, 2), {})
    assert all(not f.metadata for f in head.schema.fields)
    assert trilake.open(t.uri).to_arrow(filter="id > 0").num_rows == 2


@pytest.mark.parametrize("what", ["new", "renamed", "dropped", "partitioned", "clustered"])
def test_dropping_column_mapping_rewrites_its_files(what: str) -> None:
    t = Case() if what in ("renamed", "dropped") else Case(columnMapping__mode="id")
    if what in ("renamed", "dropped"):
        t.alter.set_properties({"delta.columnMapping.mode": "name"})
        t.alter.rename_column("p", "q") if what == "renamed" else t.alter.drop_columns("p")
    elif what == "partitioned":
        data = pa.table({"id": [1, 2], "p": ["u", None]})
        trilake.write(data, t.uri, mode="overwrite", schema_mode="overwrite", partition_by=["p"])
    elif what == "clustered":
        t.alter.cluster_by("id")
    before = trilake.open(t.uri).to_arrow()
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("columnMapping")
    operations = [t.log.commit_info(v)["operation"] for v in range(t.log.head().version + 1)]
    assert operations.count("REMOVE COLUMN MAPPING") == 1
    head = t.log.snapshot()
    assert "delta.columnMapping.mode" not in t.configuration
    assert all(not f.metadata for f in head.schema.fields)
    assert rows(trilake.open(t.uri).to_arrow()) == rows(before)
    names = [f.name for f in head.schema.fields if f.name not in head.metadata.partition_columns]
    for path in trilake.open(t.uri).files()["path"].to_pylist():
        assert pq.read_schema(pa.BufferReader(t.log.store.read(path))).names == names
    assert trilake.open(t.uri).files("id = 2").num_rows == 1
    assert [list(c) for c in clustering_columns(head)] == ([["id"]] if what == "clustered" else [])
    t.later.drop_feature("columnMapping", truncate_history=True)
    assert not has_feature(t.protocol, "columnMapping")
    assert rows(trilake.open(t.uri).to_arrow()) == rows(before)


def test_empty_tables_without_column_mapping_keep_their_clustering_columns() -> None:
    for remove in (
        lambda t: t.alter.set_properties({"delta.columnMapping.mode": "none"}),
        lambda t: t.alter.drop_feature("columnMapping", protect_history=True),
    ):
        t = Case(pa.table({"id": [1]}).slice(1), columnMapping__mode="name")
        t.alter.cluster_by("id")
        remove(t)
        assert (
            "delta.columnMapping.mode" not in t.configuration or t.configuration["delta.columnMapping.mode"] == "none"
        )
        assert clustering_columns(t.log.head()) == [("id",)]


@pytest.mark.parametrize("why", ["names", "feed"])
def test_required_column_mapping_is_not_dropped(why: str) -> None:
    names = ["id", "a b"] if why == "names" else ["id", "p"]
    feed = {"enableChangeDataFeed": "true"} if why == "feed" else {}
    t = Case(pa.table({n: [1] for n in names}), columnMapping__mode="name", **feed)
    version = t.log.head().version
    with pytest.raises(FeatureInUseError, match="rename these columns" if why == "names" else "change data feed off"):
        t.alter.drop_feature("columnMapping")
    assert t.log.head().version == version


def test_concurrent_append_survives_dropping_column_mapping() -> None:
    t = Case(columnMapping__mode="name")
    once = [1]

    def run(function: Any, tasks: Any) -> Any:
        result = list(run_here(function, tasks))
        if once:
            once.clear()
            trilake.write(pa.table({"id": [3], "p": ["w"]}), t.uri, mode="append")
        return result

    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        Alter(t.log, run=run).drop_feature("columnMapping")
    assert t.ids() == [1, 2, 3]
    assert "delta.columnMapping.mode" not in t.configuration


def test_concurrent_rename_is_respected() -> None:
    t = Case()
    t.alter.set_properties({"delta.columnMapping.mode": "name"})
    once = [1]

    def new_id() -> str:
        if once:
            once.clear()
            t.alter.rename_column("p", "q")
        return str(uuid4())

    # The names matched at the start, so nothing had to be rewritten; after the rename it has to be.
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        Alter(with_runtime(t.log, replace(SYSTEM_RUNTIME, new_id=new_id))).drop_feature("columnMapping")
    assert t.last()["operation"] == "REMOVE COLUMN MAPPING"
    assert sorted(trilake.open(t.uri).to_arrow().column("q").to_pylist()) == ["u", "v"]


def test_concurrent_append_gets_row_ids() -> None:
    t = Case()
    once = [1]

    def new_id() -> str:
        if once:
            once.clear()
            trilake.write(pa.table({"id": [3]}), t.uri, mode="append")
        return str(uuid4())

    Alter(with_runtime(t.log, replace(SYSTEM_RUNTIME, new_id=new_id))).set_properties(
        {"delta.enableRowTracking": "true"}
    )
    ids = t.log.snapshot().adds["baseRowId"].to_pylist()
    assert None not in ids
    assert len(set(ids)) == len(ids) == 2


def test_dropping_type_widening_rewrites_narrow_files() -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "l": pa.array([[1]], pa.list_(pa.int8()))})
    t = Case(narrow, enableTypeWidening="true")
    t.alter.change_type("l.element", "int")
    trilake.write(pa.table({"id": pa.array([2], pa.int32()), "l": [[1 << 30]]}), t.uri, mode="append")
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("typeWidening")
    assert t.configuration == {}
    infos = [t.log.commit_info(v) for v in range(t.log.head().version + 1)]
    (reorg,) = [i for i in infos if i["operation"] == "REORG"]
    assert reorg["operationMetrics"]["numRemovedFiles"] == "1", "the file of today's types is left alone"
    t.later.drop_feature("typeWidening", truncate_history=True)
    assert t.protocol == Protocol(1, 2)
    assert t.log.head().schema.field("l").metadata == {}
    assert sorted(trilake.open(t.uri).to_arrow().column("l").to_pylist()) == [[1], [1 << 30]]


def test_v2_checkpoint_feature_needs_its_history_truncated() -> None:
    t = Case(checkpointPolicy="v2")
    write_checkpoint(t.log, t.log.snapshot(), SYSTEM_RUNTIME)
    with pytest.raises(FeatureInUseError, match="v2 checkpoint"):
        t.alter.drop_feature("v2Checkpoint")
    t.later.drop_feature("v2Checkpoint", truncate_history=True)
    assert t.protocol == Protocol(1, 2)


def test_checkpoint_protection_ends_with_the_history_that_needs_it() -> None:
    t = Case(enableDeletionVectors="true")
    t.delete("id = 1")
    t.alter.drop_feature("deletionVectors", protect_history=True)
    assert t.protocol.writer_features == ("appendOnly", "checkpointProtection", "invariants")
    for options in ({}, {"truncate_history": True}):
        with pytest.raises(FeatureInUseError, match="still has versions before 5, starting with 0"):
            t.alter.drop_feature("checkpointProtection", **options)
    t.later.drop_feature("checkpointProtection", truncate_history=True)
    assert t.protocol == Protocol(1, 2)
    assert t.configuration == {}
    assert t.ids() == [2]


def test_truncate_history_for_a_writer_feature_is_rejected() -> None:
    t = Case()
    t.alter.add_feature("inCommitTimestamp")
    before = [f.key for f in t.log.store.list("_delta_log/")]
    with pytest.raises(InvalidArgumentError, match="truncate_history") as result:
        t.later.drop_feature("inCommitTimestamp", truncate_history=True)
    assert result.value.context["condition"] == "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED"
    assert [f.key for f in t.log.store.list("_delta_log/")] == before
    t.alter.drop_feature("inCommitTimestamp")
    assert t.protocol == Protocol(1, 2)


def test_dropping_clustering_removes_its_domain() -> None:
    t = Case()
    t.alter.add_feature("clustering")
    text = orjson.dumps({"clusteringColumns": [["id"]], "domainName": "delta.clustering"}).decode()
    commit(t.log, t.log.head(), CommitPlan("CLUSTER BY", {}, [], domains={"delta.clustering": text, "mine": "{}"}))
    t.alter.drop_feature("clustering")
    with pytest.raises(FeatureInUseError, match="domains mine"):
        t.alter.drop_feature("domainMetadata")


def test_drop_on_an_unwritable_table_is_rejected() -> None:
    t = Case()
    protocol = Protocol(1, 7, None, ("appendOnly", "unheardOf"))
    line = orjson.dumps({"protocol": protocol.to_json()}) + b"\n"
    t.log.store.put("_delta_log/00000000000000000001.json", line)
    with pytest.raises(TrilakeError, match="unheardOf"):
        t.alter.drop_feature("appendOnly")


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("__invalid__", "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
        ("deletionVectors", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
        ("catalogManaged", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"),
    ],
)
def test_rejected_drop_has_the_delta_spark_condition(name: str, condition: str) -> None:
    with pytest.raises(TrilakeError, match=condition):
        removable(Protocol(3, 7, ("catalogManaged",), ("catalogManaged",)), name)
