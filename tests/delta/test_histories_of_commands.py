"""Any sequence of writes and commands equals a plain oracle: at every version, in the change feed, and to deltalake."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import SOAK
from tests.delta.tables import opened, rows
from tests.delta.test_histories import DATA, KEYS, PARTS, PROPERTIES, History, Row, replay_changes
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable

pytestmark = pytest.mark.long

FEATURES = {k: v for k, v in PROPERTIES.items() if k != "delta.dataSkippingNumIndexedCols"}
RANGES = st.tuples(KEYS, st.integers(0, 5))
SOURCE = st.dictionaries(KEYS, PARTS, max_size=4)
COMMANDS = st.one_of(
    st.tuples(st.just("append"), DATA),
    st.tuples(st.just("overwrite"), DATA),
    st.tuples(st.just("widen"), DATA),
    st.tuples(st.just("delete"), RANGES),
    st.tuples(st.just("delete partition"), PARTS),
    st.tuples(st.just("update"), RANGES),
    st.tuples(st.just("move"), st.tuples(RANGES, PARTS)),
    st.tuples(st.just("upsert"), SOURCE),
    st.tuples(st.just("insert"), SOURCE),
    st.tuples(st.just("sync"), SOURCE),
    st.tuples(st.just("optimize"), st.booleans()),
    st.tuples(st.just("purge"), st.none()),
    st.tuples(st.just("vacuum"), st.booleans()),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)


class CommandHistory(History):
    """A history with commands; commands that change nothing may or may not make a version."""

    def run(self, operation: str, argument: Any) -> None:
        command = getattr(self, "_" + operation.replace(" ", "_"), None)
        if command is None:
            super().run(operation, argument)
            return
        after = command(argument, self._table(), self.versions[-1])
        made = self._table().version + 1 - len(self.versions)
        assert made in (0, 1, 2), operation
        if made == 0:
            assert sorted(after, key=repr) == sorted(self.versions[-1], key=repr)
        self.versions += [after] * made

    def _table(self) -> ArrowDeltaTable:
        return opened(self.store.uri)

    def _delete(self, argument: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        low, width = argument
        table.delete(f"k between {low} and {low + width}")
        return [r for r in old if not low <= r["k"] <= low + width]

    def _delete_partition(self, p: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        table.delete("p is null" if p is None else f"p = '{p}'")
        return [r for r in old if r["p"] != p]

    def _update(self, argument: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        low, width = argument
        table.update({"k": "k + 1"}, where=f"k between {low} and {low + width}")
        return [{**r, "k": r["k"] + 1} if low <= r["k"] <= low + width else r for r in old]

    def _move(self, argument: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        (low, width), p = argument
        value = "cast(null as string)" if p is None else f"'{p}'"
        table.update({"p": value}, where=f"k between {low} and {low + width}")
        return [{**r, "p": p} if low <= r["k"] <= low + width else r for r in old]

    def _source(self, pairs: Mapping[int, str | None]) -> pa.Table:
        schema = pa.schema({"k": pa.int64(), "p": pa.string()})
        return pa.Table.from_pylist([{"k": k, "p": p} for k, p in pairs.items()], schema=schema)

    def _upsert(self, pairs: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        merge = table.merge(self._source(pairs), "t.k = s.k", source_alias="s", target_alias="t")
        merge.when_matched_update({"p": "s.p"}).when_not_matched_insert({"k": "s.k", "p": "s.p"}).execute()
        have = {r["k"] for r in old}
        changed = [{**r, "p": pairs[r["k"]]} if r["k"] in pairs else r for r in old]
        return changed + [self._row(k, p) for k, p in pairs.items() if k not in have]

    def _insert(self, pairs: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        merge = table.merge(self._source(pairs), "t.k = s.k", source_alias="s", target_alias="t")
        merge.when_not_matched_insert({"k": "s.k", "p": "s.p"}, predicate="s.k > 3").execute()
        have = {r["k"] for r in old}
        return old + [self._row(k, p) for k, p in pairs.items() if k not in have and k > 3]

    def _sync(self, pairs: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        merge = table.merge(self._source(pairs), "t.k = s.k", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.p = 'a'").when_matched_update({"k": "t.k + 20"}, predicate="t.k < 6")
        merge = merge.when_not_matched_by_source_update({"p": "'gone'"}, predicate="t.k > 8")
        merge.when_not_matched_by_source_delete("t.k = 2").execute()
        after = []
        for r in old:
            k = r["k"]
            if k in pairs:
                if pairs[k] == "a":
                    continue
                after.append({**r, "k": k + 20} if k < 6 else r)
            elif k > 8:
                after.append({**r, "p": "gone"})
            elif k != 2:
                after.append(r)
        return after

    def _optimize(self, zorder: bool, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        table.optimize(zorder_by=["k"] if zorder else ())
        return old

    def _purge(self, _: Any, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        table.purge()
        return old

    def _vacuum(self, lite: bool, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        table.vacuum(dry_run=False, lite=lite)
        return old

    def _restore(self, back: int, table: ArrowDeltaTable, old: list[Row]) -> list[Row]:
        version = max(0, len(self.versions) - 1 - back)
        if version == len(self.versions) - 1:
            return old  # the newest version cannot be restored
        table.restore(version)
        columns = trilake.open(self.store.uri).schema
        self.columns = {f.name: f.type for f in columns}
        return self.versions[version]


@settings(max_examples=2_000 if SOAK else 25)
@given(
    st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in FEATURES.items()}),
    st.booleans(),
    st.lists(COMMANDS, min_size=1, max_size=8),
)
def test_any_history_of_commands_matches_an_oracle(
    properties: Mapping[str, str], partitioned: bool, commands: list[tuple[str, Any]]
) -> None:
    history = CommandHistory(properties, partitioned)
    for command, argument in commands:
        history.run(command, argument)
    for version, expected in enumerate(history.versions):
        table = trilake.open(history.store.uri, version=version)
        assert rows(table.to_arrow()) == sorted(expected, key=repr), version
        assert table.count() == len(expected)
    assert trilake.open(history.store.uri).version == len(history.versions) - 1
    if properties.get("delta.enableChangeDataFeed") == "true":
        replay_changes(history)
    _compare_with_deltalake(history)
    newest = history._table()
    newest.vacuum(0, dry_run=False, enforce_retention=False)
    assert rows(trilake.open(history.store.uri).to_arrow()) == sorted(history.versions[-1], key=repr)


def _compare_with_deltalake(history: CommandHistory) -> None:
    """Compare with deltalake's rows of the newest version, if the table needs no reader version above 1."""
    if DeltaLog(history.store, standard_engine()).snapshot().protocol.min_reader_version > 1:
        return
    with tempfile.TemporaryDirectory() as folder:
        for meta in history.store.list():
            place = Path(folder) / meta.key
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(history.store.read(meta.key))
        result = pa.table(deltalake.DeltaTable(folder).to_pyarrow_table())
        assert rows(result) == sorted(history.versions[-1], key=repr)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_every_command_in_one_history(vectors: str) -> None:
    """Covers every command even if the drawn examples change."""
    history = CommandHistory({"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}, True)
    history.run("append", [(k, p) for k in range(10) for p in ("a", "b", None)])
    for command, argument in (
        ("delete", (3, 1)),
        ("update", (5, 2)),
        ("move", ((7, 1), "c d")),
        ("upsert", {1: "a", 50: "b"}),
        ("insert", {2: None, 60: "a"}),
        ("optimize", False),
        ("sync", {1: "a", 5: None, 9: "b"}),
        ("purge", None),
        ("delete partition", None),
        ("optimize", True),
        ("vacuum", False),
        ("restore", 3),
        ("vacuum", True),
    ):
        history.run(command, argument)
    for version, expected in enumerate(history.versions):
        assert rows(trilake.open(history.store.uri, version=version).to_arrow()) == sorted(expected, key=repr)
    replay_changes(history)
