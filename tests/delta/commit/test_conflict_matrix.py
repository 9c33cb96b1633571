"""Every ordered pair of operations at every isolation level, by the pure function and by real commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.delta.tables import add, log_of, metadata, protocol
from trilake.delta.commit.conflicts import PartitionPredicate, ReadSet, Winner, check
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.partitions import PartitionKeys
from trilake.delta.protocol.property_values import LEVELS, IsolationLevel, parse_level
from trilake.delta.protocol.schema import PrimitiveType, StructField
from trilake.delta.scan.scan import parse_table_filter
from trilake.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConflictError,
    InvalidArgumentError,
    MetadataChangedError,
    ProtocolChangedError,
)

SCHEMA = (
    '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},'
    '{"name":"p","type":"string","nullable":true,"metadata":{}}]}'
)
X, Y = {"partitionValues": {"p": "x"}}, {"partitionValues": {"p": "y"}}
_Y = PartitionKeys.of_actions([{"p": "y"}], [StructField("p", PrimitiveType("string"))])


def _table() -> DeltaLog:
    """Files ``x1`` and ``x2`` in partition x, ``y1`` in partition y."""
    return log_of(
        [
            protocol(3, 7, readerFeatures=[], writerFeatures=["domainMetadata", "appendOnly"]),
            metadata(SCHEMA, ["p"]),
            add("p=x/x1", **X),
            add("p=x/x2", **X),
            add("p=y/y1", **Y),
        ]
    )


def _added(name: str, where: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return add(name, **where, **fields)


def _removed(base: Snapshot, *paths: str, data_change: bool = True) -> list[dict[str, Any]]:
    result = [remove_action(a, 1) for a in base.adds.to_pylist() if a["path"] in paths]
    assert len(result) == len(paths)
    return [{"remove": {**r["remove"], "dataChange": data_change}} for r in result]


def _predicate(base: Snapshot, text: str) -> tuple[PartitionPredicate, ...]:
    parsed = parse_table_filter(text, base)
    assert parsed is not None
    return (PartitionPredicate.of(base, parsed),)


def _plan(actions: list[dict[str, Any]], read: ReadSet, **more: Any) -> CommitPlan:
    return CommitPlan(operation="TEST", parameters={}, file_actions=actions, read=read, **more)


def _append(where: Mapping[str, Any]) -> Callable[[Snapshot, str], CommitPlan]:
    return lambda base, name: _plan([_added(name, where)], ReadSet())


def _insert_select(base: Snapshot, name: str) -> CommitPlan:
    files = frozenset({"p=x/x1", "p=x/x2"})
    return _plan([_added(name, X)], ReadSet(predicates=_predicate(base, "p = 'x'"), files=files))


def _delete(base: Snapshot, name: str) -> CommitPlan:
    one = frozenset({"p=x/x1"})
    read = ReadSet(predicates=_predicate(base, "p = 'x' and a > 1"), files=one, removed=one)
    return _plan(_removed(base, *one), read)


def _update(base: Snapshot, name: str) -> CommitPlan:
    plan = _delete(base, name)
    return replace(plan, file_actions=[*plan.file_actions, _added(name, X)])


def _update_y(base: Snapshot, name: str) -> CommitPlan:
    one = frozenset({"p=y/y1"})
    read = ReadSet(predicates=_predicate(base, "p = 'y'"), files=one, removed=one)
    return _plan([*_removed(base, *one), _added(name, Y)], read)


def _overwrite(base: Snapshot, name: str) -> CommitPlan:
    paths = frozenset(base.adds["path"].to_pylist())
    return _plan([*_removed(base, *paths), _added(name, X)], ReadSet(whole_table=True, removed=paths))


def _dynamic(base: Snapshot, name: str) -> CommitPlan:
    one = frozenset({"p=y/y1"})
    return _plan([*_removed(base, *one), _added(name, Y)], ReadSet(partitions=(_Y,), removed=one))


def _optimize(base: Snapshot, name: str) -> CommitPlan:
    both = frozenset({"p=x/x1", "p=x/x2"})
    actions = [*_removed(base, *both, data_change=False), _added(name, X, dataChange=False)]
    return _plan(actions, ReadSet(files=both, removed=both))


def _metadata(base: Snapshot, name: str) -> CommitPlan:
    changed = replace(base.metadata, configuration={"delta.appendOnly": "false", "by": name})
    return _plan([], ReadSet(), metadata=changed)


def _protocol(base: Snapshot, name: str) -> CommitPlan:
    return _plan([], ReadSet(), protocol=Protocol(3, 7, ("timestampNtz",), ("domainMetadata", "timestampNtz")))


def _enable(base: Snapshot, name: str) -> CommitPlan:
    features = ("domainMetadata", "appendOnly", "deletionVectors")
    metadata = replace(base.metadata, configuration={"delta.enableDeletionVectors": "true"})
    return _plan([], ReadSet(), metadata=metadata, protocol=Protocol(3, 7, ("deletionVectors",), features))


def _stream(base: Snapshot, name: str) -> CommitPlan:
    return replace(_append(X)(base, name), txns={"query": 7})


def _domain(base: Snapshot, name: str) -> CommitPlan:
    return _plan([], ReadSet(), domains={"test.domain": name})


OPERATIONS: dict[str, Callable[[Snapshot, str], CommitPlan]] = {
    "append x": _append(X),
    "append y": _append(Y),
    "insert": _insert_select,
    "delete": _delete,
    "update": _update,
    "update y": _update_y,
    "overwrite": _overwrite,
    "dynamic y": _dynamic,
    "optimize": _optimize,
    "metadata": _metadata,
    "protocol": _protocol,
    "stream": _stream,
    "domain": _domain,
    "enable": _enable,
}
CODES: dict[str, type[ConflictError] | None] = {
    ".": None,
    "A": ConcurrentAppendError,
    "R": ConcurrentDeleteReadError,
    "D": ConcurrentDeleteDeleteError,
    "M": MetadataChangedError,
    "P": ProtocolChangedError,
    "T": ConcurrentTransactionError,
}
# Rows: the later commit.  Columns: the winner, in the order of OPERATIONS.
MATRIX: dict[IsolationLevel, dict[str, str]] = {
    "WriteSerializable": {
        #            x y i d u y o d o m p s d e
        "append x": ". . . . . . . . . M P . . .",
        "append y": ". . . . . . . . . M P . . .",
        "insert": ". . A R A . A . A M P . . .",
        "delete": ". . A R A . A . A M P . . .",
        "update": ". . A R A . A . A M P . . .",
        "update y": ". . . . . A R A . M P . . .",
        "overwrite": ". . A R A A A A A M P . . .",
        "dynamic y": ". . . . . A R A . M P . . .",
        "optimize": ". . A R A . A . A M P . . .",
        "metadata": ". . . . . . . . . M P . . M",
        "protocol": ". . . . . . . . . M P . . P",
        "stream": ". . . . . . . . . M P T . .",
        "domain": ". . . . . . . . . M P . M .",
        "enable": ". . . . . . . . . M P . . P",
    },
    "Serializable": {
        "append x": ". . . . . . . . . M P . . .",
        "append y": ". . . . . . . . . M P . . .",
        "insert": "A . A R A . A . A M P A . .",
        "delete": "A . A R A . A . A M P A . .",
        "update": "A . A R A . A . A M P A . .",
        "update y": ". A . . . A R A . M P . . .",
        "overwrite": "A A A R A A A A A M P A . .",
        "dynamic y": ". A . . . A R A . M P . . .",
        "optimize": ". . . R R . R . R M P . . .",
        "metadata": ". . . . . . . . . M P . . M",
        "protocol": ". . . . . . . . . M P . . P",
        "stream": ". . . . . . . . . M P T . .",
        "domain": ". . . . . . . . . M P . M .",
        "enable": ". . . . . . . . . M P . . P",
    },
    "SnapshotIsolation": {
        "append x": ". . . . . . . . . M P . . .",
        "append y": ". . . . . . . . . M P . . .",
        "insert": ". . . R R . R . R M P . . .",
        "delete": ". . . R R . R . R M P . . .",
        "update": ". . . R R . R . R M P . . .",
        "update y": ". . . . . R R R . M P . . .",
        "overwrite": ". . . R R R R R R M P . . .",
        "dynamic y": ". . . . . R R R . M P . . .",
        "optimize": ". . . R R . R . R M P . . .",
        "metadata": ". . . . . . . . . M P . . M",
        "protocol": ". . . . . . . . . M P . . P",
        "stream": ". . . . . . . . . M P T . .",
        "domain": ". . . . . . . . . M P . M .",
        "enable": ". . . . . . . . . M P . . P",
    },
}
# An optimize reads files by name, not by predicate: added files never conflict with it.
MATRIX["WriteSerializable"]["optimize"] = MATRIX["Serializable"]["optimize"]

PAIRS = [
    (level, mine, theirs, code)
    for level, matrix in MATRIX.items()
    for mine, row in matrix.items()
    for theirs, code in zip(OPERATIONS, row.split(), strict=True)
]


def test_conflict_matrix_is_complete() -> None:
    assert set(MATRIX) == set(LEVELS)
    assert len(PAIRS) == len(LEVELS) * len(OPERATIONS) ** 2


@pytest.mark.parametrize("level", LEVELS)
def test_every_pair_of_operations(level: IsolationLevel) -> None:
    for _, mine, theirs, code in [p for p in PAIRS if p[0] == level]:
        log = _table()
        base = log.snapshot()
        plan = OPERATIONS[mine](base, "mine")
        plan = replace(plan, read=replace(plan.read, isolation=level, protocol=base.protocol, metadata=base.metadata))
        won = commit(log, base, OPERATIONS[theirs](base, "theirs"))
        winner = Winner(won, log.parse(log.commits(won)))
        expected = CODES[code]
        pair = f"{level}: {mine} after {theirs}"
        pure = check(plan.complete_read, winner)
        assert type(pure) is (expected or type(None)), pair
        if expected is None:
            assert commit(log, base, plan) == 2, pair
            continue
        assert pure is not None
        assert pure.context["version"] == 1
        with pytest.raises(expected) as caught:
            commit(log, base, plan)
        assert caught.value.context["operation"] == "TEST", pair
        assert log.snapshot().version == 1, pair


def test_predicate_covers_new_partitions() -> None:
    log = _table()
    base = log.snapshot()
    plan = _plan([], ReadSet(predicates=_predicate(base, "p >= 'y'"), isolation="Serializable"))
    commit(log, base, _plan([_added("z", {"partitionValues": {"p": "z"}})], ReadSet()))
    with pytest.raises(ConcurrentAppendError, match="added 1 file "):
        commit(log, base, plan)


def test_data_predicate_covers_its_whole_partitions() -> None:
    log = _table()
    base = log.snapshot()
    plan = _plan([], ReadSet(predicates=_predicate(base, "a = 5 and p = 'y'"), isolation="Serializable"))
    commit(log, base, _plan([_added("n", X)], ReadSet()))
    assert commit(log, base, plan) == 2


def test_identity_high_water_mark_is_not_a_metadata_change() -> None:
    marked = SCHEMA.replace('"metadata":{}},', '"metadata":{"delta.identity.start":1,"delta.identity.step":1}},', 1)
    log = log_of([protocol(1, 6), metadata(marked, ["p"]), add("p=x/x1", **X)])
    base = log.snapshot()
    further = marked.replace('"delta.identity.start"', '"delta.identity.highWaterMark":9,"delta.identity.start"')
    moved = replace(base.metadata, schema_string=further)
    winner = Winner(1, log.parse(log.commits(0)))
    winner = replace(winner, actions=replace(winner.actions, rare=((1, "metaData", moved.to_json()),)))
    assert check(ReadSet(metadata=base.metadata), winner) is None
    assert isinstance(check(ReadSet(metadata=base.metadata, changes_metadata=True), winner), MetadataChangedError)
    read = ReadSet(metadata=base.metadata, changes_metadata=True, rebases_identity=True)
    assert check(read, winner) is None
    other = replace(moved, configuration={"x": "y"})
    winner = replace(winner, actions=replace(winner.actions, rare=((1, "metaData", other.to_json()),)))
    assert isinstance(check(read, winner), MetadataChangedError)


def test_isolation_levels_are_parsed_by_name() -> None:
    assert parse_level(" writeserializable ") == "WriteSerializable"
    with pytest.raises(InvalidArgumentError, match="levels are Serializable"):
        parse_level("read committed")


def test_metadata_is_compared_by_value() -> None:
    assert Metadata.from_json(metadata()["metaData"]) == Metadata.from_json(metadata()["metaData"])
