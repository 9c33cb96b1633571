"""The registry of table features: supported features, features required by metadata, and the lowest protocol."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval
from trilake.delta.protocol.features import (
    REGISTRY,
    add_feature,
    check_readable,
    check_writable,
    dependents,
    feature,
    features_of,
    has_feature,
    normalized,
    protocol_for,
    required,
    upgrade_protocol,
    upgraded,
    with_features,
    without_feature,
)
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError

WRITABLE = sorted(f.name for f in REGISTRY.values() if f.writes)
LEGACY = [
    Protocol(1, 1),
    Protocol(1, 2),
    Protocol(1, 3),
    Protocol(1, 4),
    Protocol(1, 6),
    Protocol(2, 5),
    Protocol(2, 6),
]


def table(
    *types: str,
    field_metadata: dict[str, object] | None = None,
    more: dict[str, str] | None = None,
    **configuration: str,
) -> Metadata:
    fields = [
        StructField(f"c{i}", PrimitiveType(t), True, field_metadata or {}) for i, t in enumerate(types or ["long"])
    ]
    return Metadata(
        "t",
        StructType(tuple(fields)).json(),
        configuration={f"delta.{k}": v for k, v in {**configuration, **(more or {})}.items()},
    )


def listed(name: str, *, reader: int = 1) -> Protocol:
    """Sets of features that no protocol version implies: the default ones and one more."""
    return Protocol(reader, 7, None, tuple(sorted(("appendOnly", "invariants", name))))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (table(), Protocol(1, 2)),
        (table(appendOnly="true"), Protocol(1, 2)),
        (table(enableChangeDataFeed="true"), listed("changeDataFeed")),
        (table(more={"constraints.c": "c0 > 1"}), Protocol(1, 3)),
        (table(more={"columnMapping.mode": "name"}), listed("columnMapping", reader=2)),
        (table(field_metadata={"delta.generationExpression": "1"}), listed("generatedColumns")),
        (table(field_metadata={"delta.identity.start": 1}), listed("identityColumns")),
        (table("timestamp_ntz"), Protocol(3, 7, ("timestampNtz",), ("appendOnly", "invariants", "timestampNtz"))),
        (
            table(enableDeletionVectors="true", enableChangeDataFeed="TRUE"),
            Protocol(3, 7, ("deletionVectors",), ("appendOnly", "changeDataFeed", "deletionVectors", "invariants")),
        ),
        (
            table(enableRowTracking="true", more={"columnMapping.mode": "id"}),
            Protocol(2, 7, None, ("appendOnly", "columnMapping", "domainMetadata", "invariants", "rowTracking")),
        ),
        (
            table(enableDeletionVectors="true", more={"columnMapping.mode": "id"}),
            Protocol(
                3,
                7,
                ("columnMapping", "deletionVectors"),
                ("appendOnly", "columnMapping", "deletionVectors", "invariants"),
            ),
        ),
        (
            table(enableTypeWidening="true"),
            Protocol(3, 7, ("typeWidening",), ("appendOnly", "invariants", "typeWidening")),
        ),
        (table(checkpointPolicy="v2"), Protocol(3, 7, ("v2Checkpoint",), ("appendOnly", "invariants", "v2Checkpoint"))),
        (
            table(field_metadata={"CURRENT_DEFAULT": "1"}, enableInCommitTimestamps="true"),
            Protocol(1, 7, None, ("allowColumnDefaults", "appendOnly", "inCommitTimestamp", "invariants")),
        ),
    ],
)
def test_new_table_gets_the_lowest_protocol(metadata: Metadata, expected: Protocol) -> None:
    assert protocol_for(metadata) == expected


def test_named_features_include_their_requirements() -> None:
    assert protocol_for(table(), ["clustering"]) == Protocol(
        1, 7, None, ("appendOnly", "clustering", "domainMetadata", "invariants")
    )
    assert required(table(enableIcebergCompatV2="true")) == ["columnMapping", "icebergCompatV2"]


@pytest.mark.parametrize(
    ("protocol", "metadata", "expected"),
    [
        (Protocol(1, 2), table(), Protocol(1, 2)),
        (Protocol(1, 1), table(appendOnly="true"), Protocol(1, 2)),
        (Protocol(1, 6), table(enableChangeDataFeed="true"), Protocol(1, 6)),
        # Writer version 6 supports column mapping, reader version 1 does not.
        (Protocol(1, 6), table(more={"columnMapping.mode": "name"}), Protocol(2, 6)),
        (
            Protocol(2, 5),
            table(enableDeletionVectors="true"),
            Protocol(
                3,
                7,
                ("columnMapping", "deletionVectors"),
                (
                    "appendOnly",
                    "changeDataFeed",
                    "checkConstraints",
                    "columnMapping",
                    "deletionVectors",
                    "generatedColumns",
                    "invariants",
                ),
            ),
        ),
        (
            Protocol(1, 3),
            table(enableInCommitTimestamps="true"),
            Protocol(1, 7, None, ("appendOnly", "checkConstraints", "inCommitTimestamp", "invariants")),
        ),
        (
            Protocol(1, 7, None, ("unheardOf",)),
            table(more={"columnMapping.mode": "name"}),
            Protocol(2, 7, None, ("columnMapping", "unheardOf")),
        ),
        (
            Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)),
            table(more={"columnMapping.mode": "name"}),
            Protocol(3, 7, ("columnMapping", "deletionVectors"), ("columnMapping", "deletionVectors")),
        ),
        # A preview feature behaves like the final feature.
        (
            Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",)),
            table(enableTypeWidening="true"),
            Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",)),
        ),
    ],
)
def test_protocol_is_upgraded_with_missing_features(protocol: Protocol, metadata: Metadata, expected: Protocol) -> None:
    assert upgraded(protocol, metadata) == expected
    assert upgraded(expected, metadata) is expected


@given(st.sampled_from(LEGACY), st.lists(st.sampled_from(WRITABLE), max_size=5))
def test_upgrade_never_loses_a_feature(protocol: Protocol, names: list[str]) -> None:
    before, after = features_of(protocol), protocol
    for name in names:
        after = add_feature(after, name)
        assert has_feature(after, name)
        assert all(has_feature(after, n) for n in feature(name).needs)
        assert add_feature(after, name) is after
    assert before <= features_of(after)
    assert after.min_reader_version >= protocol.min_reader_version
    assert after.min_writer_version >= protocol.min_writer_version
    assert (after.writer_features is not None) == (after.min_writer_version == 7)
    assert (after.reader_features is not None) == (after.min_reader_version == 3)
    # Reader features are listed for readers as well.
    assert all(after.min_reader_version >= (REGISTRY[n].reader or 1) for n in features_of(after))
    check_readable(after, uri="t", version=0)
    check_writable(after, uri="t", version=0)
    assert features_of(normalized(after)) == features_of(after)


@given(st.sampled_from(LEGACY), st.sampled_from(WRITABLE))
def test_dropping_removes_only_that_feature(protocol: Protocol, name: str) -> None:
    with_it = with_features(protocol, [name])
    without = without_feature(with_it, name)
    assert features_of(without) == features_of(with_it) - {name}
    if name not in features_of(protocol) and not REGISTRY[name].legacy and protocol != Protocol(1, 6):
        assert without == protocol


@pytest.mark.parametrize(
    ("protocol", "to", "expected"),
    [
        (Protocol(1, 2), (1, 4), Protocol(1, 4)),
        (Protocol(1, 4), (1, 2), Protocol(1, 4)),
        (Protocol(1, 2), (2, 5), Protocol(2, 5)),
        (Protocol(1, 2), (1, 7), Protocol(1, 7, None, ("appendOnly", "invariants"))),
        (Protocol(1, 2), (3, 7), Protocol(3, 7, (), ("appendOnly", "invariants"))),
        (
            Protocol(2, 5),
            (3, 7),
            Protocol(
                3,
                7,
                ("columnMapping",),
                ("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns", "invariants"),
            ),
        ),
    ],
)
def test_protocol_versions_never_decrease(protocol: Protocol, to: tuple[int, int], expected: Protocol) -> None:
    assert upgrade_protocol(protocol, *to) == expected
    assert upgrade_protocol(expected, *to) is expected or upgrade_protocol(expected, *to) == expected


@pytest.mark.parametrize("versions", [(3, 6), (2, 4), (0, 2), (1, 8), (4, 7)])
def test_invalid_protocol_versions_are_rejected(versions: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="version"):
        upgrade_protocol(Protocol(1, 2), *versions)


@pytest.mark.parametrize(
    ("name", "reads", "help"),
    [
        ("catalogManaged", False, "connected to that catalog"),
        ("catalogOwned-preview", False, "connected to that catalog"),
        ("redirectReaderWriter-preview", False, "its property delta.redirectReaderWriter-preview names"),
        ("redirectWriterOnly-preview", True, "its property delta.redirectWriterOnly-preview names"),
        ("collations-preview", False, "a newer trilake"),
    ],
)
def test_unsupported_feature_error_says_what_is_needed(name: str, reads: bool, help: str) -> None:
    protocol = Protocol(3, 7, () if reads else (name,), (name,))
    checks = [lambda: check_writable(protocol, uri="t", version=1)]
    if reads:
        check_readable(protocol, uri="t", version=1)
    else:
        checks.append(lambda: check_readable(protocol, uri="t", version=1))
    for check in checks:
        with pytest.raises(UnsupportedProtocolError, match=name) as raised:
            check()
        assert help in str(raised.value.help)


def test_feature_names_are_checked() -> None:
    assert feature("DELETIONvectors").name == "deletionVectors"
    for unknown in ("magic", "catalogManaged"):
        with pytest.raises(UnsupportedProtocolError, match=unknown):
            add_feature(Protocol(1, 2), unknown)
    assert dependents(protocol_for(table(), ["clustering", "rowTracking"]), "domainMetadata") == [
        "clustering",
        "rowTracking",
    ]


def test_registry_rows_are_consistent() -> None:
    for f in REGISTRY.values():
        assert f.reader in (None, 2, 3)
        assert 2 <= f.writer <= 7
        assert all(n in REGISTRY for n in f.needs)
        assert f.reader != 3 or f.writer == 7


def test_every_registry_field_is_used() -> None:
    """A field that no row sets would be dead code."""
    rows = list(REGISTRY.values())
    for kind, used in ((Feature, rows), (FeatureRemoval, [f.removal for f in rows if f.removal is not None])):
        plain = {f.name: f.default for f in fields(kind)}
        assert [name for name, default in plain.items() if all(getattr(row, name) == default for row in used)] == []
