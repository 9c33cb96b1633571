"""Table properties: keys, values, and keys that look like a property but are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol import properties
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.features import REGISTRY, required
from trilake.delta.protocol.properties import (
    TableProperties,
    canonical,
    check_value,
    known_properties,
    parse_keys,
    parse_properties,
    property_default,
)
from trilake.delta.protocol.property_values import column_list, duration_ms
from trilake.errors import InvalidArgumentError, UnknownOptionError, UnsupportedProtocolError

PROPERTIES = known_properties()


def test_keys_and_values_are_normalized() -> None:
    change = parse_properties(
        {
            "delta.APPENDONLY": "True",
            "delta.enablechangedatafeed": False,
            "delta.checkpointInterval": 5,
            "delta.columnMapping.MODE": "NAME",
            "delta.dataSkippingStatsColumns": " a ,b.c, `x,y` ",
            "delta.isolationLevel": "serializable",
            "Owner": "Ann",
        }
    )
    assert change.values == {
        "delta.appendOnly": "true",
        "delta.enableChangeDataFeed": "false",
        "delta.checkpointInterval": "5",
        "delta.columnMapping.mode": "name",
        "delta.dataSkippingStatsColumns": "a,b.c,`x,y`",
        "delta.isolationLevel": "Serializable",
        "Owner": "Ann",
    }


def test_properties_are_read_with_their_types_and_defaults() -> None:
    unset, other = TableProperties({}), TableProperties({"delta.appendOnly": "TRUE", "delta.targetFileSize": "2kb"})
    assert (unset.is_on("delta.appendOnly"), other.is_on("delta.appendOnly")) == (False, True)
    assert (unset.is_on("delta.enableExpiredLogCleanup"), unset.text("delta.appendOnly")) == (True, "false")
    assert (unset.number("delta.checkpointInterval"), unset.indexed_columns()) == (10, 32)
    assert unset.duration_ms("delta.logRetentionDuration") == 30 * 86_400_000
    assert (unset.size_bytes("delta.targetFileSize"), other.size_bytes("delta.targetFileSize")) == (None, 2048)
    assert (unset.isolation_level(), unset.text("mine")) == ("WriteSerializable", None)


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ("delta.checkpointInterval", lambda p, key: p.number(key)),
        ("delta.logRetentionDuration", lambda p, key: p.duration_ms(key)),
        ("delta.targetFileSize", lambda p, key: p.size_bytes(key)),
        ("delta.isolationLevel", lambda p, key: p.isolation_level()),
    ],
)
@pytest.mark.parametrize("text", ["", "often"])
def test_invalid_value_of_another_writer_is_named(
    key: str, read: Callable[[TableProperties, str], object], text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"the table property {key} is invalid: .*'{text}'") as e:
        read(TableProperties({key: text}), key)
    assert e.value.context["property"] == key
    assert TableProperties({"delta.dataSkippingNumIndexedCols": text}).indexed_columns() == 32


def test_every_property_is_defined_once() -> None:
    """Properties of a feature are in its row, all others in the list without a feature."""
    rows = [p.name for f in REGISTRY.values() for p in f.properties]
    assert sorted({*rows}) == sorted(set(PROPERTIES) - {p.name for p in properties._ROWS})
    assert len(PROPERTIES) == len(properties._ROWS) + len({*rows})


def test_features_and_versions_are_not_properties() -> None:
    change = parse_properties(
        {
            "delta.feature.CLUSTERING": "supported",
            "delta.feature.deletionVectors": "Enabled",
            "delta.minReaderVersion": "3",
            "delta.minWriterVersion": 7,
        }
    )
    assert (change.values, change.features) == ({}, ("clustering", "deletionVectors"))
    assert (change.reader, change.writer) == (3, 7)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("delta.appendOnly", "yes", "true or false"),
        ("delta.checkpointInterval", "0", ">= 1"),
        ("delta.checkpointInterval", "ten", ">= 1"),
        ("delta.dataSkippingNumIndexedCols", "-2", ">= -1"),
        ("delta.checkpointPolicy", "v3", "classic, v2"),
        ("delta.columnMapping.mode", "names", "none, name, id"),
        ("delta.isolationLevel", "chaos", "Serializable, WriteSerializable, SnapshotIsolation"),
        ("delta.logRetentionDuration", "a while", "interval 30 days"),
        ("delta.logRetentionDuration", "interval", "interval 30 days"),
        ("delta.logRetentionDuration", "interval 2 months", "interval 30 days"),
        ("delta.targetFileSize", "large", "128mb"),
        ("delta.targetFileSize", "0mb", "128mb"),
        ("delta.universalFormat.enabledFormats", "hudi", "iceberg or empty"),
        ("delta.feature.clustering", "on", "supported"),
        ("delta.minReaderVersion", "new", ">= 1"),
        ("delta.appendOnly", None, "unset"),
        ("delta.columnMapping.maxColumnId", "3", "column mapping itself"),
        ("delta.inCommitTimestampEnablementVersion", "3", "turns the feature on"),
        ("delta.constraints.c", "a > 1", "add_constraint"),
    ],
)
def test_invalid_value_names_property_and_allowed_values(key: str, value: object, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_properties({key: value})
    assert key in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("key", ["delta.apendOnly", "Delta.autoCompact", "delta.", "delta.columnMapping"])
def test_unknown_delta_properties_are_rejected(key: str) -> None:
    with pytest.raises(UnknownOptionError, match="is unknown"):
        parse_properties({key: "true"})
    with pytest.raises(UnknownOptionError, match="is unknown"):
        parse_keys([key])


def test_unknown_feature_is_rejected() -> None:
    with pytest.raises(UnsupportedProtocolError, match="telepathy"):
        parse_properties({"delta.feature.telepathy": "supported"})


def test_keys_to_unset() -> None:
    assert parse_keys(["DELTA.appendonly", "mine"]) == ["delta.appendOnly", "mine"]
    for key in ("delta.feature.clustering", "delta.minReaderVersion", "delta.columnMapping.maxColumnId"):
        with pytest.raises(InvalidArgumentError, match=key):
            parse_keys([key])


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("interval 30 days", 30 * 86_400_000),
        ("INTERVAL 1 WEEK", 604_800_000),
        ("1 day 2 hours, 3 minutes", 93_780_000),
        ("interval 0 seconds", 0),
        ("1500 microseconds", 1),
    ],
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_every_property_definition(name: str) -> None:
    row = PROPERTIES[name]
    assert canonical(name.upper()) == name
    if row.default is not None:
        assert check_value(name, row.default) == row.default == property_default(name)


@pytest.mark.parametrize(
    ("name", "key"), [(f.name, p.name) for f in REGISTRY.values() for p in f.properties if p.set_by is None]
)
def test_feature_property_requires_its_feature(name: str, key: str) -> None:
    empty = '{"type":"struct","fields":[]}'
    on = {"delta.columnMapping.mode": "name", "delta.checkpointPolicy": "v2"}.get(key, "true")
    with_it = required(Metadata("t", empty, configuration={key: check_value(key, on)}))
    assert name in with_it or key == "delta.rowTrackingSuspended"
    default = PROPERTIES[key].default
    if default is not None:
        assert required(Metadata("t", empty, configuration={key: default})) == []


@given(st.dictionaries(st.sampled_from([*PROPERTIES, "x", "delta.y"]), st.text(max_size=8)))
def test_accepted_properties_are_stable(raw: dict[str, str]) -> None:
    try:
        change = parse_properties(raw)
    except InvalidArgumentError:
        return
    assert parse_properties(change.values) == change


def test_column_lists_are_parsed() -> None:
    assert column_list("") == []
    assert column_list("`a``b`.c,d") == ["`a``b`.c", "d"]
