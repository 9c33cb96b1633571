"""Any sequence of writes equals a plain oracle at every version, from commits, checkpoints or increments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import SOAK
from tests.delta.tables import opened, rows
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.log.segment import commit_key
from trilake.delta.standard import standard_engine
from trilake.storage.memory import MemoryStore

Row = dict[str, Any]

PROPERTIES = {
    "delta.enableDeletionVectors": ["true"],
    "delta.enableChangeDataFeed": ["true"],
    "delta.columnMapping.mode": ["name", "id"],
    "delta.enableRowTracking": ["true"],
    "delta.enableInCommitTimestamps": ["true"],
    "delta.checkpointPolicy": ["v2"],
    "delta.checkpointInterval": ["2", "3"],
    "delta.checkpoint.writeStatsAsStruct": ["true"],
    "delta.checkpoint.writeStatsAsJson": ["false"],
    "delta.dataSkippingNumIndexedCols": ["0", "1"],
}
KEYS = st.integers(0, 12)
PARTS = st.sampled_from(["a", "b", "c d", None])
DATA = st.lists(st.tuples(KEYS, PARTS), max_size=4)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), DATA),
    st.tuples(st.just("overwrite"), DATA),
    st.tuples(st.just("dynamic"), DATA),
    st.tuples(st.just("where"), st.tuples(KEYS, st.integers(0, 6), st.integers(0, 2))),
    st.tuples(st.just("partition"), st.tuples(PARTS, st.integers(0, 2))),
    st.tuples(st.just("widen"), DATA),
    st.tuples(st.just("once"), st.tuples(st.integers(0, 3), KEYS)),
)


class History:
    """A table and the expected rows of every version."""

    def __init__(self, properties: Mapping[str, str], partitioned: bool) -> None:
        self.store = MemoryStore()
        self.partitioned = partitioned
        self.columns: dict[str, pa.DataType] = {"k": pa.int64(), "p": pa.string()}
        self.seen = -1
        self.versions: list[list[Row]] = []
        self._write([], [], mode="error", properties=properties, partition_by="p" if partitioned else None)

    def _row(self, k: int, p: str | None) -> Row:
        return {**dict.fromkeys(self.columns), "k": k, "p": p}

    def _write(self, new: list[Row], after: list[Row], *, mode: str, **options: Any) -> None:
        schema = pa.schema(list(self.columns.items()))
        trilake.write(pa.Table.from_pylist(new, schema=schema), self.store.uri, mode=mode, **options)
        self.versions.append(after)

    def run(self, operation: str, argument: Any) -> None:
        old = self.versions[-1]
        if operation in ("append", "overwrite", "dynamic"):
            new = [self._row(*pair) for pair in argument]
            if operation == "append":
                self._write(new, old + new, mode="append")
            elif operation == "overwrite" or not self.partitioned:
                self._write(new, new, mode="overwrite")
            else:
                parts = {r["p"] for r in new}
                kept = [r for r in old if r["p"] not in parts]
                self._write(new, kept + new, mode="overwrite", partition_overwrite="dynamic")
        elif operation == "where":
            low, width, count = argument
            new = [self._row(low, "a")] * count
            kept = [r for r in old if not low <= r["k"] <= low + width]
            self._write(new, kept + new, mode="overwrite", replace_where=f"k between {low} and {low + width}")
        elif operation == "partition":
            p, count = argument
            new = [self._row(1, p)] * count
            where = "p is null" if p is None else f"p = '{p}'"
            self._write(new, [r for r in old if r["p"] != p] + new, mode="overwrite", replace_where=where)
        elif operation == "widen":
            name = f"n{len(self.columns)}"
            self.columns[name] = pa.int32()
            new = [{**self._row(*pair), name: 7} for pair in argument]
            self._write(new, [{**r, name: None} for r in old] + new, mode="append", schema_mode="merge")
        else:
            version, k = argument
            new = [self._row(k, None)]
            if version > self.seen:
                self._write(new, old + new, mode="append", txn=("app", version))
                self.seen = version
            else:  # already in the table: no new version
                before = trilake.open(self.store.uri).version
                trilake.write(pa.Table.from_pylist(new), self.store.uri, mode="append", txn=("app", version))
                assert trilake.open(self.store.uri).version == before


def _commits_alone(store: MemoryStore, last: int) -> MemoryStore:
    copy = MemoryStore()
    for meta in store.list():
        if not meta.key.startswith("_delta_log/"):
            copy.put(meta.key, store.read(meta.key))
    for version in range(last + 1):
        copy.put(commit_key(version), store.read(commit_key(version)))
    return copy


@settings(max_examples=2_000 if SOAK else 25)
@given(
    st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in PROPERTIES.items()}),
    st.booleans(),
    st.lists(OPERATIONS, min_size=1, max_size=7),
    st.booleans(),
)
def test_any_history_of_writes_matches_an_oracle(
    properties: Mapping[str, str], partitioned: bool, operations: list[tuple[str, Any]], compacted: bool
) -> None:
    history = History(properties, partitioned)
    follower = DeltaLog(history.store, standard_engine()).snapshot()
    for operation, argument in operations:
        history.run(operation, argument)
    log = DeltaLog(history.store, standard_engine())
    last = len(history.versions) - 1
    if compacted and last >= 3:
        compact_log(log, 1, last - 1)
    plain = _commits_alone(history.store, last)
    for version, expected in enumerate(history.versions):
        for store in (history.store, plain):
            table = trilake.open(store.uri, version=version)
            assert rows(table.to_arrow()) == sorted(expected, key=repr), version
            assert table.count() == len(expected)
    assert trilake.open(history.store.uri).version == last
    fresh, followed = log.snapshot(), log.update(follower)
    assert sorted(followed.adds["path"].to_pylist()) == sorted(fresh.adds["path"].to_pylist())
    assert followed.state.txns == fresh.state.txns
    assert followed.state.domains == fresh.state.domains
    if properties.get("delta.enableChangeDataFeed") == "true":
        replay_changes(history)


def replay_changes(history: History) -> None:
    table = opened(history.store.uri)
    for version, expected in enumerate(history.versions):
        # A restored schema may lack columns of the version before; a feed has the columns of its last version.
        names = set(trilake.open(history.store.uri, version=version).schema.names)
        before = history.versions[version - 1] if version else []
        current = [_text({k: v for k, v in r.items() if k in names}) for r in before]
        changes = table.changes(version, version).to_pylist()
        for change in sorted(changes, key=lambda c: str(c["_change_type"]) != "delete"):
            row = _text({k: v for k, v in change.items() if not k.startswith("_")})
            if change["_change_type"] in ("delete", "update_preimage"):
                current.remove(row)
            else:
                current.append(row)
        assert sorted(current) == sorted(_text(r) for r in expected), version


def _text(row: Row) -> str:
    """Return a row without null columns, which may have been added later."""
    return repr(sorted((k, v) for k, v in row.items() if v is not None))
