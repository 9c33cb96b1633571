"""Dropping table features: what refuses, what is turned off, and what a table is afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pytest

import trilake
from trilake.delta.actions import Protocol
from trilake.delta.alter_table import Alter
from trilake.delta.checkpoint_writer import write_checkpoint
from trilake.delta.feature_removal import REMOVALS, history_trace, oldest_version
from trilake.delta.features import REGISTRY, has_feature
from trilake.delta.log import DeltaLog
from trilake.delta.log_cleanup import DAY_MS
from trilake.delta.runtime import Runtime
from trilake.delta.transaction import CommitPlan, commit
from trilake.errors import FeatureInUseError, InvalidArgumentError, TrilakeError, UnsupportedProtocolError
from trilake.storage import open_store


class Case:
    """A table in memory, what changes it now, and what changes it three days later."""

    def __init__(self, data: pa.Table | None = None, **properties: str) -> None:
        self.uri = f"memory://removal-{uuid4()}"
        self.log = DeltaLog(open_store(self.uri))
        data = pa.table({"id": [1, 2], "p": ["u", "v"]}) if data is None else data
        trilake.write(data, self.uri, properties={f"delta.{k.replace('__', '.')}": v for k, v in properties.items()})
        self.alter = Alter(self.log)
        now = Runtime().clock_ms()
        self.later = Alter(self.log, runtime=replace(Runtime(), clock_ms=lambda: now + 3 * DAY_MS))

    @property
    def protocol(self) -> Protocol:
        return self.log.head().protocol

    @property
    def configuration(self) -> dict[str, str]:
        return dict(self.log.head().metadata.configuration)

    def last(self) -> dict[str, Any]:
        return self.log.commit_info(self.log.head().version)


def test_every_feature_that_can_be_had_can_be_dropped() -> None:
    assert set(REMOVALS) == {n for n, f in REGISTRY.items() if f.reads}


@pytest.mark.parametrize(
    "name", sorted(n for n, f in REGISTRY.items() if f.writes != "never" and n not in ("appendOnly", "invariants"))
)
def test_a_feature_that_nothing_uses_comes_and_goes(name: str) -> None:
    t = Case()
    t.alter.add_feature(name)
    assert has_feature(t.protocol, name)
    t.alter.drop_feature(name.upper())
    assert not has_feature(t.protocol, name)
    assert t.last()["operation"] == "DROP FEATURE"
    assert t.last()["operationParameters"] == {"featureName": name, "truncateHistory": "false"}
    if not REGISTRY[name].legacy and not REGISTRY[name].needs:
        assert t.protocol == Protocol(1, 2)


def test_what_cannot_be_dropped() -> None:
    t = Case(enableRowTracking="true")
    for name, error, says in [
        ("clustering", InvalidArgumentError, "does not have"),
        ("magic", UnsupportedProtocolError, "unknown"),
        ("domainMetadata", FeatureInUseError, "rowTracking needs it"),
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
def test_features_of_writers_are_turned_off_and_gone_in_one_commit(properties: dict[str, str], name: str) -> None:
    t = Case(**properties)
    version = t.alter.drop_feature(name)
    assert version == 1
    assert not has_feature(t.protocol, name)
    assert t.configuration == {}
    assert trilake.open(t.uri).to_arrow().num_rows == 2
    trilake.write(pa.table({"id": [3]}), t.uri, mode="append")


def test_row_tracking_takes_its_ids_along() -> None:
    t = Case(enableRowTracking="true")
    assert t.log.snapshot().adds["baseRowId"].null_count == 0
    t.alter.drop_feature("rowTracking")
    snapshot = t.log.snapshot()
    assert snapshot.adds["baseRowId"].null_count == snapshot.adds.num_rows == 1
    assert snapshot.adds["dataChange"].to_pylist() == [False]
    assert not [d for d, v in snapshot.state.domains.items() if not v.get("removed")]
    t.alter.drop_feature("domainMetadata")
    assert t.protocol == Protocol(1, 2)


def test_rules_must_go_first() -> None:
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


def test_types_must_go_first_and_out_of_the_history() -> None:
    t = Case(pa.table({"id": [1], "t": pa.array([0], pa.timestamp("us"))}), columnMapping__mode="name")
    with pytest.raises(FeatureInUseError, match="columns are of type timestamp_ntz: t"):
        t.alter.drop_feature("timestampNtz")
    t.alter.drop_columns("t")
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("timestampNtz")
    # Too young to be cleaned up.
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("timestampNtz", truncate_history=True)
    t.later.drop_feature("timestampNtz", truncate_history=True)
    assert oldest_version(t.log) > 0
    assert t.last()["operationParameters"]["truncateHistory"] == "true"
    assert not has_feature(t.protocol, "timestampNtz")
    assert trilake.open(t.uri).to_arrow().to_pylist() == [{"id": 1}]


def test_deletion_vectors_that_were_never_written() -> None:
    t = Case(enableDeletionVectors="true")
    t.alter.drop_feature("deletionVectors")
    assert t.protocol == Protocol(1, 2)
    assert t.configuration == {}
    operations = [t.log.commit_info(v)["operation"] for v in range(3)]
    assert operations == ["WRITE", "UNSET TBLPROPERTIES", "DROP FEATURE"]


def test_deletion_vectors_that_are_there() -> None:
    t = Case(enableDeletionVectors="true")
    snapshot = t.log.snapshot()
    add = snapshot.adds.to_pylist()[0]
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    bare = {k: v for k, v in add.items() if v is not None} | {"partitionValues": {}, "tags": {}}
    actions = [
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**bare, "deletionVector": vector}},
    ]
    commit(t.log, snapshot, CommitPlan("DELETE", {}, actions))
    with pytest.raises(FeatureInUseError, match=r"1 files have deletion vectors.*rewrite"):
        t.alter.drop_feature("deletionVectors")
    assert "delta.enableDeletionVectors" not in t.configuration
    assert has_feature(t.protocol, "deletionVectors")
    # Rewritten, as a purge does it: now only the history knows of the vector.
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": False, "deletionVector": vector}
    commit(t.log, t.log.head(), CommitPlan("REORG", {}, [{"remove": gone}]))
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("deletionVectors")
    row = REMOVALS["deletionVectors"]
    assert history_trace(t.log, "deletionVectors", row) is not None


def test_column_mapping_goes_where_names_are_what_they_were() -> None:
    t = Case()
    t.alter.set_properties({"delta.columnMapping.mode": "name"})
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("columnMapping")
    write_checkpoint(t.log, t.log.snapshot(), Runtime())
    t.later.drop_feature("columnMapping", truncate_history=True)
    head = t.log.head()
    assert (head.protocol, dict(head.metadata.configuration)) == (Protocol(1, 4), {})
    assert all(not f.metadata for f in head.schema.fields)
    assert trilake.open(t.uri).to_arrow(filter="id > 0").num_rows == 2


@pytest.mark.parametrize("what", ["new", "renamed", "dropped"])
def test_column_mapping_stays_where_files_use_it(what: str) -> None:
    t = Case() if what != "new" else Case(columnMapping__mode="id")
    if what != "new":
        t.alter.set_properties({"delta.columnMapping.mode": "name"})
        t.alter.rename_column("p", "q") if what == "renamed" else t.alter.drop_columns("p")
    with pytest.raises(FeatureInUseError, match="rewrite all files"):
        t.alter.drop_feature("columnMapping")


def test_a_rename_meanwhile_keeps_the_mapping() -> None:
    t = Case()
    t.alter.set_properties({"delta.columnMapping.mode": "name"})
    once = [1]

    def new_id() -> str:
        if once:
            once.clear()
            t.alter.rename_column("p", "q")
        return str(uuid4())

    with pytest.raises(FeatureInUseError, match="by other names: q"):
        Alter(t.log, runtime=replace(Runtime(), new_id=new_id)).drop_feature("columnMapping")
    assert t.configuration["delta.columnMapping.mode"] == "name"
    assert sorted(trilake.open(t.uri).to_arrow().column("q").to_pylist()) == ["u", "v"]


def test_rows_that_arrive_while_row_ids_are_given_get_theirs() -> None:
    t = Case()
    once = [1]

    def new_id() -> str:
        if once:
            once.clear()
            trilake.write(pa.table({"id": [3]}), t.uri, mode="append")
        return str(uuid4())

    Alter(t.log, runtime=replace(Runtime(), new_id=new_id)).set_properties({"delta.enableRowTracking": "true"})
    ids = t.log.snapshot().adds["baseRowId"].to_pylist()
    assert None not in ids
    assert len(set(ids)) == len(ids) == 2


def test_type_widening_goes_once_no_file_is_narrow() -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "l": pa.array([[1]], pa.list_(pa.int8()))})
    t = Case(narrow, enableTypeWidening="true")
    t.alter.change_type("l.element", "int")
    with pytest.raises(FeatureInUseError, match="1 files hold narrower types"):
        t.alter.drop_feature("typeWidening")
    assert t.configuration == {}
    trilake.write(pa.table({"id": pa.array([1], pa.int32()), "l": [[1 << 30]]}), t.uri, mode="overwrite")
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        t.alter.drop_feature("typeWidening")
    t.later.drop_feature("typeWidening", truncate_history=True)
    assert t.protocol == Protocol(1, 2)
    assert t.log.head().schema.field("l").metadata == {}
    assert trilake.open(t.uri).to_arrow().column("l").to_pylist() == [[1 << 30]]


def test_checkpoints_of_version_two_must_be_gone() -> None:
    t = Case(checkpointPolicy="v2")
    write_checkpoint(t.log, t.log.snapshot(), Runtime())
    with pytest.raises(FeatureInUseError, match="checkpoints of version 2"):
        t.alter.drop_feature("v2Checkpoint")
    t.later.drop_feature("v2Checkpoint", truncate_history=True)
    assert t.protocol == Protocol(1, 2)


def test_clustering_takes_its_domain_along() -> None:
    t = Case()
    t.alter.add_feature("clustering")
    text = orjson.dumps({"clusteringColumns": [["id"]], "domainName": "delta.clustering"}).decode()
    commit(t.log, t.log.head(), CommitPlan("CLUSTER BY", {}, [], domains={"delta.clustering": text, "mine": "{}"}))
    t.alter.drop_feature("clustering")
    with pytest.raises(FeatureInUseError, match="domains mine"):
        t.alter.drop_feature("domainMetadata")


def test_nothing_is_dropped_where_writing_is_not_possible() -> None:
    t = Case()
    protocol = Protocol(1, 7, None, ("appendOnly", "unheardOf"))
    line = orjson.dumps({"protocol": protocol.to_json()}) + b"\n"
    t.log.store.put("_delta_log/00000000000000000001.json", line)
    with pytest.raises(TrilakeError, match="unheardOf"):
        t.alter.drop_feature("appendOnly")
