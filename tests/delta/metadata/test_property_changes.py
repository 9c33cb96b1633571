"""ALTER TABLE on tables with rows: properties, the features they need, and constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import trilake
from tests.delta.commands.alter.alter_case import MAPPED, Case
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.metadata.schema_changes import Condition
from trilake.delta.protocol.actions import Protocol
from trilake.errors import (
    ConstraintViolatedError,
    ExpressionError,
    FeatureInUseError,
    InvalidArgumentError,
    TrilakeError,
    UnknownOptionError,
    UnsupportedExpressionError,
)

# --- properties ------------------------------------------------------------------------------------------------------


def test_properties_enable_their_features() -> None:
    t = Case()
    t.alter.set_properties({"delta.ENABLEchangedatafeed": "TRUE", "team": "x"})
    assert t.last() == ("SET TBLPROPERTIES", {"properties": {"delta.ENABLEchangedatafeed": "TRUE", "team": "x"}})
    assert t.head.protocol == Protocol(1, 7, None, ("appendOnly", "changeDataFeed", "invariants"))
    assert dict(t.head.metadata.configuration) == {"delta.enableChangeDataFeed": "true", "team": "x"}
    t.alter.set_properties({"delta.feature.deletionVectors": "supported", "delta.enableInCommitTimestamps": "true"})
    assert t.head.protocol.reader_features == ("deletionVectors",)
    assert {"changeDataFeed", "inCommitTimestamp", "deletionVectors"} <= set(t.head.protocol.writer_features or ())
    assert t.head.metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    assert t.alter.set_properties({"team": "x"}) == 2
    t.alter.unset_properties("team", "delta.enableChangeDataFeed")
    assert t.last()[1] == {"properties": ["team", "delta.enableChangeDataFeed"], "ifExists": False}
    with pytest.raises(InvalidArgumentError, match="team are not set"):
        t.alter.unset_properties("team")
    assert t.alter.unset_properties("team", if_exists=True) == 3
    with pytest.raises(UnknownOptionError):
        t.alter.set_properties({"delta.typo": "1"})


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"delta.columnMapping.mode": "id"}, "only when a table is created"),
        ({"delta.dataSkippingStatsColumns": "id,what"}, "no column what"),
        ({"delta.dataSkippingStatsColumns": "id,p"}, "p, which is a partition column"),
        ({"delta.dataSkippingStatsColumns": "m"}, "m, which has the type map"),
        ({"delta.dataSkippingStatsColumns": "s,s.x"}, "x, which is named twice"),
        ({"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2"),
        ({"delta.feature.catalogManaged": "supported"}, "catalogManaged"),
        ({"delta.minReaderVersion": "3"}, "writer version 7"),
        ({"delta.constraints.c": "id > 0"}, "add_constraint"),
    ],
)
def test_invalid_property_changes_are_rejected(properties: dict[str, str], says: str) -> None:
    t = Case()
    with pytest.raises(TrilakeError) as caught:
        t.alter.set_properties(properties)
    assert says in str(caught.value)
    assert t.head.version == 0


def test_change_feed_rejects_its_reserved_column_names() -> None:
    t = Case()
    t.alter.add_columns({"_change_type": "string"})
    with pytest.raises(InvalidArgumentError, match="_change_type"):
        t.alter.set_properties({"delta.enableChangeDataFeed": "true"})


@pytest.mark.parametrize("other", [{"delta.enableDeletionVectors": "true"}, MAPPED], ids=["vectors", "mapping"])
def test_symlink_manifests_exclude_vectors_and_mapping(other: dict[str, str]) -> None:
    manifests = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    for first, second in ((other, manifests), (manifests, other)):
        t = Case()
        t.alter.set_properties(first)
        with pytest.raises(InvalidArgumentError, match="cannot be used together"):
            t.alter.set_properties(second)
        assert t.head.version == 1
    with pytest.raises(InvalidArgumentError, match="cannot be used together"):
        Case(properties={**other, **manifests})


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("unset", [False, True])
def test_column_mapping_can_be_disabled(renamed: bool, unset: bool) -> None:
    t = Case()
    t.alter.set_properties(MAPPED)
    assert t.head.protocol == Protocol(2, 7, None, ("appendOnly", "columnMapping", "invariants"))
    if renamed:
        t.alter.rename_column("s", "t")
    name = "t" if renamed else "s"
    before = t.rows()
    assert before[0][name] == {"x": 1, "y": "a"}
    if unset:
        t.alter.unset_properties("delta.columnMapping.mode")
    else:
        t.alter.set_properties({"delta.columnMapping.mode": "NONE", "owner": "me"})
        assert t.head.metadata.configuration["owner"] == "me"
    assert t.head.metadata.column_mapping_mode == "none"
    assert ("delta.columnMapping.mode" in t.head.metadata.configuration) != unset
    assert all(f.metadata == {} for f in t.head.schema.fields)
    assert t.log.commit_info(t.head.version - (not unset))["operation"] == "REMOVE COLUMN MAPPING"
    assert "columnMapping" in (t.head.protocol.writer_features or ())
    assert t.rows() == before


def test_names_that_need_column_mapping_keep_it() -> None:
    t = Case()
    t.alter.set_properties(MAPPED)
    t.alter.rename_column("s", "a b")
    with pytest.raises(InvalidArgumentError, match="rename these columns first") as e:
        t.alter.set_properties({"delta.columnMapping.mode": "none"})
    assert e.value.context["condition"] == "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING"
    assert t.head.metadata.column_mapping_mode == "name"


def test_names_of_an_empty_table_keep_column_mapping() -> None:
    """Without files it could be disabled, and the table had columns that Parquet files must not have."""
    t = Case(properties=MAPPED)
    t.alter.rename_column("s", "a b")
    trilake.open(t.uri).delete()
    with pytest.raises(InvalidArgumentError, match="rename these columns first"):
        t.alter.unset_properties("delta.columnMapping.mode")
    with pytest.raises(FeatureInUseError) as e:
        t.alter.drop_feature("columnMapping")
    assert e.value.context["condition"] == "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING"


def test_existing_rows_get_row_ids() -> None:
    t = Case()
    t.alter.set_properties({"delta.enableRowTracking": "true"})
    adds = t.log.snapshot().adds
    assert adds["baseRowId"].null_count == 0
    assert sorted(adds["baseRowId"].to_pylist()) == [0, 1]
    operations = [t.log.commit_info(v)["operation"] for v in range(t.head.version + 1)]
    assert operations == ["WRITE", "SET TBLPROPERTIES", "ROW TRACKING BACKFILL", "SET TBLPROPERTIES"]
    name = t.head.properties.text("delta.rowTracking.materializedRowIdColumnName")
    assert name is not None
    assert name.startswith("_row-id-col-")
    assert len(t.rows()) == 2


# --- constraints -----------------------------------------------------------------------------------------------------


def test_constraints_apply_to_old_and_new_rows() -> None:
    t = Case()
    t.alter.add_constraint("Positive", "id > 0")
    assert t.last() == ("ADD CONSTRAINT", {"name": "Positive", "expr": "id > 0"})
    assert t.head.protocol == Protocol(1, 3)
    assert t.head.metadata.configuration == {"delta.constraints.positive": "id > 0"}
    with pytest.raises(ConstraintViolatedError, match="id = -1"):
        t.append({"id": -1, "p": "u"})
    with pytest.raises(ConstraintViolatedError, match=r"small.*id = 2"):
        t.alter.add_constraint("small", "id < 2")
    with pytest.raises(InvalidArgumentError, match="already"):
        t.alter.add_constraint("POSITIVE", "true")
    for wrong in ("what > 1", "id + 1", "id >"):
        with pytest.raises((ExpressionError, TrilakeError)):
            t.alter.add_constraint("wrong", wrong)
    assert t.head.version == 1
    t.alter.drop_constraint("positive")
    assert t.last() == ("DROP CONSTRAINT", {"name": "positive", "expr": "id > 0", "existed": True})
    t.append({"id": -1, "p": "u"})
    with pytest.raises(InvalidArgumentError, match="there is no constraint"):
        t.alter.drop_constraint("positive")
    assert t.alter.drop_constraint("positive", if_exists=True) == t.head.version


def test_constraint_with_a_spark_only_function() -> None:
    t = Case()
    text = "regexp_replace(p, 'a', 'b') <> aes_encrypt(p, 'k')"
    with pytest.raises(UnsupportedExpressionError, match="Spark"):
        t.alter.add_constraint("c", text)
    calls: list[tuple[int, str]] = []

    def find(snapshot: Snapshot, condition: Condition) -> Mapping[str, Any] | None:
        calls.append((snapshot.version, condition.sql))
        return {"id": 7}

    with pytest.raises(ConstraintViolatedError, match="id = 7"):
        Alter(t.log, find_violation=find).add_constraint("c", text)
    assert calls == [(0, text)]
