"""Iceberg compatibility: each rule of each version, on tables that trilake writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import add, new_uri, opened
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.features import protocol_for
from trilake.delta.protocol.iceberg import ENABLED, UNIFORM
from trilake.delta.protocol.schema import NESTED_IDS, PrimitiveType, StructField, StructType
from trilake.delta.rules.iceberg_compat import check_compatible, check_files, with_needs
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store

V1, V2, V3 = ({key: "true"} for key in ENABLED.values())
NAMED = {"delta.columnMapping.mode": "name"}
TRACKED = {"delta.enableRowTracking": "true"}
NESTED = pa.table(
    {
        "id": [1, 2],
        "l": pa.array([[[1], None], None], pa.list_(pa.list_(pa.int64()))),
        "m": pa.array([[("k", [{"s": 1}])], []], pa.map_(pa.string(), pa.list_(pa.struct([("s", pa.int64())])))),
        "t": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    }
)


def footers(uri: str) -> list[pq.ParquetFile]:
    store = open_store(uri)
    paths = map(unquote, opened(uri).snapshot.adds["path"].to_pylist())
    return [pq.ParquetFile(pa.BufferReader(store.read(p))) for p in paths]


def metadata_of(configuration: Mapping[str, str], *fields: StructField, partition: tuple[str, ...] = ()) -> Metadata:
    return Metadata("t", StructType(fields).json(), partition_columns=partition, configuration=configuration)


def column(kind: str, **notes: Any) -> StructField:
    return StructField("c", PrimitiveType(kind), metadata=notes)


# --- rules of metadata -----------------------------------------------------------------------------------------------

PLAIN = column("long")
WIDENED = [{"fromType": "integer", "toType": "double"}]


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        (metadata_of({**V1, **V2, **NAMED}, PLAIN), "VERSION_MUTUAL_EXCLUSIVE"),
        (metadata_of(V1, PLAIN), "WRONG_REQUIRED_TABLE_PROPERTY"),
        (metadata_of(V2, PLAIN), "WRONG_REQUIRED_TABLE_PROPERTY"),
        (metadata_of({**V3, **TRACKED}, PLAIN), "WRONG_REQUIRED_TABLE_PROPERTY"),
        (metadata_of({**V3, **NAMED}, PLAIN), "WRONG_REQUIRED_TABLE_PROPERTY"),
        (metadata_of({**V1, **NAMED}, column("void")), "UNSUPPORTED_DATA_TYPE"),
        (metadata_of({**V2, **NAMED}, column("void")), "UNSUPPORTED_DATA_TYPE"),
        (metadata_of({**V2, **NAMED}, column("variant")), "UNSUPPORTED_DATA_TYPE"),
        (metadata_of({**V3, **NAMED, **TRACKED}, column("void")), "UNSUPPORTED_DATA_TYPE"),
        (metadata_of({**V2, **NAMED, "delta.enableDeletionVectors": "true"}, PLAIN), "DELETION_VECTORS_SHOULD_BE"),
        (
            metadata_of(
                {**V2, **NAMED, "delta.enableTypeWidening": "true"}, column("double", **{"delta.typeChanges": WIDENED})
            ),
            "UNSUPPORTED_TYPE_WIDENING",
        ),
        (metadata_of({**V3, **NAMED, **TRACKED}, column("long", CURRENT_DEFAULT="1 + 1")), "c is 1 [+] 1"),
        (replace(metadata_of({**V2, **NAMED}, PLAIN), provider="lance"), "Parquet files"),
    ],
)
def test_broken_metadata_rule_is_named(after: Metadata, rule: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rule) as caught:
        check_compatible(None, after, protocol_for(after))
    assert "icebergCompatV" in caught.value.message


@pytest.mark.parametrize(
    "after",
    [
        metadata_of({**V1, **NAMED}, PLAIN),
        metadata_of({**V2, "delta.columnMapping.mode": "id"}, column("decimal(5,2)")),
        metadata_of({**V3, **NAMED, **TRACKED}, column("variant")),
        metadata_of({**V3, **NAMED, **TRACKED, "delta.enableDeletionVectors": "true"}, PLAIN),
        metadata_of({**V3, **NAMED, **TRACKED}, column("long", CURRENT_DEFAULT="-1")),
        metadata_of({**V1, "delta.enableIcebergCompatV1": "false"}, column("void")),
        metadata_of(
            {**V2, **NAMED, "delta.enableTypeWidening": "true"},
            column("long", **{"delta.typeChanges": [{"fromType": "byte", "toType": "long"}]}),
        ),
    ],
)
def test_metadata_within_the_rules_is_allowed(after: Metadata) -> None:
    check_compatible(None, after, protocol_for(after))


@pytest.mark.parametrize(("version", "rejected"), [(V1, True), (V2, False), (V3, False)])
def test_only_v1_rejects_the_deletion_vectors_feature(version: dict[str, str], rejected: bool) -> None:
    after = with_needs(None, metadata_of(version, PLAIN))
    protocol = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
    if rejected:
        with pytest.raises(InvalidArgumentError, match="drop that feature"):
            check_compatible(None, after, protocol)
    else:
        check_compatible(None, after, protocol)


@pytest.mark.parametrize("version", [V1, V2, V3])
def test_partition_columns_cannot_change(version: dict[str, str]) -> None:
    fields = (column("long"), StructField("p", PrimitiveType("long")), StructField("q", PrimitiveType("long")))
    by = {p: with_needs(None, metadata_of(version, *fields, partition=p)) for p in ((), ("p",), ("q",))}
    check_compatible(by[()], by["p",], protocol_for(by["p",]))
    for after in ((), ("q",)):
        with pytest.raises(InvalidArgumentError, match="REPLACE_TABLE_CHANGE_PARTITION_NAMES"):
            check_compatible(by["p",], by[after], protocol_for(by[after]))


@pytest.mark.parametrize(
    ("version", "fields", "rule"),
    [
        (V1, {}, "numRecords"),
        (V2, {"stats": "{}"}, "numRecords"),
        (V3, {"stats": '{"minValues":{"numRecords":1}}'}, "numRecords"),
        (V1, {"stats": '{"numRecords":1}', "deletionVector": {"storageType": "u"}}, "NOT_PURGED"),
        (V2, {"stats": '{"numRecords":1}', "deletionVector": {"storageType": "u"}}, "NOT_PURGED"),
        (V3, {"stats": '{"numRecords":1}', "deletionVector": {"storageType": "u"}}, None),
        ({}, {}, None),
    ],
)
def test_files_that_break_a_rule_are_rejected(
    version: dict[str, str], fields: dict[str, Any], rule: str | None
) -> None:
    files = [add("f", **fields)["add"]]
    if rule is None:
        check_files(metadata_of(version, PLAIN), files)
    else:
        with pytest.raises(InvalidArgumentError, match=rule):
            check_files(metadata_of(version, PLAIN), files)


# --- writes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V2, V3])
def test_nested_parts_have_field_ids_in_files(version: dict[str, str]) -> None:
    uri = new_uri()
    trilake.write(NESTED, uri, properties=version)
    schema = opened(uri).snapshot.schema
    lists, m = (schema.field(n) for n in ("l", "m"))
    assert list(lists.metadata[NESTED_IDS]) == [
        f"{lists.physical_name}.element",
        f"{lists.physical_name}.element.element",
    ]
    assert [n.removeprefix(m.physical_name) for n in m.metadata[NESTED_IDS]] == [".key", ".value", ".value.element"]
    [file] = footers(uri)
    arrow = file.schema_arrow
    ids = [
        arrow.field(1).type.value_field,
        arrow.field(1).type.value_field.type.value_field,
        arrow.field(2).type.key_field,
        arrow.field(2).type.item_field,
        arrow.field(2).type.item_field.type.value_field,
    ]
    expected = [*lists.metadata[NESTED_IDS].values(), *m.metadata[NESTED_IDS].values()]
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in ids] == expected
    assert opened(uri).to_arrow().equals(NESTED)
    top = int(opened(uri).properties["delta.columnMapping.maxColumnId"])
    assert top == max(*expected, *(f.column_id or 0 for f in schema.fields))


def test_new_columns_get_ids_above_the_nested_ones() -> None:
    uri = new_uri()
    trilake.write(NESTED, uri, properties=V2)
    top = int(opened(uri).properties["delta.columnMapping.maxColumnId"])
    trilake.alter(uri).add_columns({"more": "array<int>"})
    more = opened(uri).snapshot.schema.field("more")
    assert more.column_id == top + 1
    assert list(more.metadata[NESTED_IDS].values()) == [top + 2]


PARTITIONS: dict[str, tuple[pa.DataType, Any]] = {
    "string": (pa.string(), "a b"),
    "long": (pa.int64(), -5),
    "byte": (pa.int8(), 3),
    "double": (pa.float64(), 1.5),
    "decimal": (pa.decimal128(9, 2), Decimal("1.50")),
    "date": (pa.date32(), datetime(2020, 1, 2).date()),  # noqa: DTZ001 - a day
    "timestamp": (pa.timestamp("us", "UTC"), datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    "boolean": (pa.bool_(), True),
    "binary": (pa.binary(), b"\x01x"),
}


@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("properties", [V1, {"delta.feature.materializePartitionColumns": "supported"}])
def test_partition_values_are_in_the_files(kind: str, properties: dict[str, str]) -> None:
    uri, (type_, value) = new_uri(), PARTITIONS[kind]
    rows = pa.table({"p": pa.array([value, None], type_), "id": [1, 2]})
    trilake.write(rows, uri, partition_by="p", properties=properties)
    name = opened(uri).snapshot.schema.field("p").physical_name
    tables = [f.read() for f in footers(uri)]
    assert all(t.column_names[-1] == name for t in tables)
    assert {t[name].to_pylist()[0] for t in tables} == {value, None}
    assert name not in "".join(opened(uri).snapshot.adds["stats"].to_pylist())
    assert sorted(opened(uri).to_arrow().to_pylist(), key=lambda r: r["id"]) == rows.to_pylist()


MATCHING = pa.table({"p": ["x"], "id": [1]})


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"id": "id + 10"}, "id = 1"),
        lambda t: t.delete("id = 1"),
        lambda t: (
            t.merge(pa.table({"p": ["x"], "id": [1]}), "target.id = source.id").when_matched_update_all().execute()
        ),
        lambda t: t.optimize(),
    ],
)
def test_changes_keep_partition_values_in_files(change: Callable[[ArrowDeltaTable], object]) -> None:
    uri = new_uri()
    for n in (0, 2):
        rows = pa.table({"p": ["x", "x"], "id": [n + 1, n + 2]})
        trilake.write(rows, uri, mode="append", partition_by="p", properties=None if n else V2)
    change(opened(uri))
    name = opened(uri).snapshot.schema.field("p").physical_name
    assert all(f.schema_arrow.names[-1] == name for f in footers(uri))
    assert set(opened(uri).to_arrow()["p"].to_pylist()) == {"x"}


def test_files_have_no_partition_columns_without_the_feature() -> None:
    uri = new_uri()
    trilake.write(pa.table({"p": ["x"], "id": [1]}), uri, partition_by="p")
    assert [f.schema_arrow.names for f in footers(uri)] == [["id"]]
    trilake.alter(uri).set_properties({"delta.writePartitionColumnsToParquet": "true"})
    trilake.write(pa.table({"p": ["x"], "id": [2]}), uri, mode="append")
    assert sorted(len(f.schema_arrow.names) for f in footers(uri)) == [1, 2]


def test_materialized_row_ids_use_iceberg_field_ids() -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1, 2]}), uri, properties=V3)
    opened(uri).update({"id": "id + 10"}, "id = 1")
    fields = [f for file in footers(uri) for f in file.schema_arrow if f.name.startswith("_row")]
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in fields] == [2147483540, 2147483539]


@pytest.mark.parametrize("version", [V1, V2, V3])
def test_new_table_gets_the_required_features(version: dict[str, str]) -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1]}), uri, properties=version)
    table = opened(uri)
    assert table.properties["delta.columnMapping.mode"] == "name"
    features = set(table.snapshot.protocol.writer_features or ())
    assert features >= {f"icebergCompatV{k}" for k in (1, 2, 3) if ENABLED[k] in version} | {"columnMapping"}
    assert ("rowTracking" in features) == (version is V3)


# --- enabling and disabling ------------------------------------------------------------------------------------------


def test_rejected_property_changes_nothing() -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1]}), uri)
    for properties in (V2, {**V1, **V2, **NAMED}):
        with pytest.raises(InvalidArgumentError, match="icebergCompatV"):
            trilake.alter(uri).set_properties(properties)
    assert opened(uri).version == 0


@pytest.mark.parametrize(
    ("rows", "properties", "on", "reason"),
    [
        (pa.table({"p": ["x"], "id": [1]}), {}, {**V1, **NAMED}, "do not contain partition columns"),
        (NESTED.select(["id", "l"]), {}, {**V2, **NAMED}, "no field ids inside arrays"),
        (NESTED.select(["id", "t"]), {}, {**V3, **NAMED}, "INT96"),
    ],
)
def test_incompatible_old_files_must_be_rewritten(
    rows: pa.Table, properties: dict[str, str], on: dict[str, str], reason: str
) -> None:
    uri = new_uri()
    trilake.write(rows, uri, partition_by="p" if "p" in rows.column_names else None, properties=properties)
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        trilake.alter(uri).set_properties(on)
    assert "UPGRADE UNIFORM" in str(caught.value)


@pytest.mark.parametrize("on", [V1, V2, V3])
def test_flat_table_can_enable_compatibility(on: dict[str, str]) -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1, 2]}), uri)
    trilake.alter(uri).set_properties({**on, **NAMED})
    trilake.write(pa.table({"id": [3]}), uri, mode="append")
    assert sorted(opened(uri).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_deletion_vectors_must_be_purged_first() -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1, 2, 3]}), uri, properties={**NAMED, "delta.enableDeletionVectors": "true"})
    opened(uri).delete("id = 2")
    off = {"delta.enableDeletionVectors": "false"}
    with pytest.raises(InvalidArgumentError, match="1 of 1 have deletion vectors"):
        trilake.alter(uri).set_properties({**V2, **off})
    opened(uri).purge()
    trilake.alter(uri).set_properties({**V2, **off})
    assert opened(uri).properties["delta.enableIcebergCompatV2"] == "true"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_feature_is_dropped_with_its_property(number: int) -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1]}), uri, properties={ENABLED[number]: "true"})
    trilake.alter(uri).drop_feature(f"icebergCompatV{number}")
    table = opened(uri)
    assert f"icebergCompatV{number}" not in (table.snapshot.protocol.writer_features or ())
    assert ENABLED[number] not in table.properties
    trilake.alter(uri).drop_feature("columnMapping", truncate_history=False, protect_history=True)


@pytest.mark.parametrize("way", ["false", "unset", "drop"])
def test_removing_compatibility_disables_iceberg_metadata(way: str) -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1]}), uri, properties={**V2, UNIFORM: "iceberg"})
    alter = trilake.alter(uri)
    if way == "false":
        alter.set_properties({ENABLED[2]: "false"})
    elif way == "unset":
        alter.unset_properties(ENABLED[2])
    else:
        alter.drop_feature("icebergCompatV2")
    assert UNIFORM not in opened(uri).properties
    with pytest.raises(InvalidArgumentError, match="requires icebergCompatV1 or V2"):
        alter.set_properties({UNIFORM: "iceberg"})


def test_switching_versions_keeps_iceberg_metadata() -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1]}), uri, properties={**V2, UNIFORM: "iceberg"})
    trilake.alter(uri).set_properties({ENABLED[1]: "true", ENABLED[2]: "false"})
    assert opened(uri).properties[UNIFORM] == "iceberg"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_upgrade_rewrites_incompatible_files(number: int) -> None:
    rows = pa.table({"p": ["x", "y", "y"], "id": [1, 2, 3], "l": [[1], None, []]})
    rows = rows.drop_columns("l") if number == 1 else rows
    uri = new_uri()
    vectors = {} if number == 1 else {"delta.enableDeletionVectors": "true"}
    trilake.write(rows, uri, partition_by="p", properties=vectors)
    if vectors:
        opened(uri).delete("id = 3")
    done = opened(uri).upgrade_iceberg_compat(number)
    assert done.files_removed == done.files_added == 2
    table = opened(uri)
    assert table.properties[ENABLED[number]] == "true"
    assert {dict(t)["ICEBERG_COMPAT_VERSION"] for t in table.snapshot.adds["tags"].to_pylist()} == {str(number)}
    assert all("p" in f.schema_arrow.names for f in footers(uri))
    kept = rows.to_pylist()[: 3 if number == 1 else 2]
    assert sorted(table.to_arrow().to_pylist(), key=lambda r: r["id"]) == kept
    assert trilake.open(uri).history().to_pylist()[0]["operation"] == "REORG TABLE UPGRADE UNIFORM"
    assert opened(uri).upgrade_iceberg_compat(number).files_added == 0
    assert opened(uri).version == table.version


def test_upgrade_from_v1_to_v2_keeps_compatible_files() -> None:
    uri = new_uri()
    trilake.write(pa.table({"p": ["x"], "id": [1]}), uri, partition_by="p", properties=V1)
    done = trilake.sql(f"REORG TABLE delta.`{uri}` APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))")
    assert done is not None
    assert opened(uri).properties["delta.enableIcebergCompatV1"] == "false"
    assert opened(uri).properties["delta.enableIcebergCompatV2"] == "true"


@pytest.mark.parametrize("version", [0, 4, True])
def test_upgrade_to_an_unknown_version_is_rejected(version: int) -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1]}), uri)
    with pytest.raises(InvalidArgumentError, match="1, 2 or 3"):
        opened(uri).upgrade_iceberg_compat(version)
