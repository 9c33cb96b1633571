"""Random merges match an oracle: rows, counts, change feed, and rejected merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import examples
from tests.delta.tables import new_uri
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import AmbiguousMergeError

Row = tuple[Any, ...]
_SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "a": pa.int32()})

# Conditions and values as SQL and as Python over (target, source); None is null.
_BOTH: list[tuple[str, Callable[[Row, Row], Any]]] = [
    ("s.a > 2", lambda t, s: None if s[2] is None else s[2] > 2),
    ("t.a < s.a", lambda t, s: None if None in (t[2], s[2]) else t[2] < s[2]),
    ("t.p = 'x'", lambda t, s: None if t[1] is None else t[1] == "x"),
    ("t.a IS NULL OR s.p = 'y'", lambda t, s: True if t[2] is None else None if s[1] is None else s[1] == "y"),
]
_SOURCE: list[tuple[str, Callable[[Row], Any]]] = [
    ("s.a > 2", lambda s: None if s[2] is None else s[2] > 2),
    ("p <> 'x'", lambda s: None if s[1] is None else s[1] != "x"),
    ("s.id IS NOT NULL", lambda s: s[0] is not None),
]
_TARGET: list[tuple[str, Callable[[Row], Any]]] = [
    ("t.a > 2", lambda t: None if t[2] is None else t[2] > 2),
    ("p = 'x'", lambda t: None if t[1] is None else t[1] == "x"),
    ("t.id IS NULL", lambda t: t[0] is None),
]
_UPDATES: list[tuple[dict[str, str] | None, Callable[[Row, Row], Row]]] = [
    (None, lambda t, s: s),
    ({"a": "s.a"}, lambda t, s: (t[0], t[1], s[2])),
    ({"t.a": "t.a + s.a", "p": "s.p"}, lambda t, s: (t[0], s[1], None if None in (t[2], s[2]) else t[2] + s[2])),
]
_INSERTS: list[tuple[dict[str, str] | None, Callable[[Row], Row]]] = [
    (None, lambda s: s),
    ({"id": "s.id", "a": "coalesce(a, 7)"}, lambda s: (s[0], None, 7 if s[2] is None else s[2])),
]
_CHANGES: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
    ({"a": "0"}, lambda t: (t[0], t[1], 0)),
    ({"p": "'z'", "a": "a + 1"}, lambda t: (t[0], "z", None if t[2] is None else t[2] + 1)),
]
_JOINS: dict[str, Callable[[Row, Row], bool]] = {
    "t.id = s.id": lambda t, s: t[0] is not None and t[0] == s[0],
    "t.id <=> s.id": lambda t, s: t[0] == s[0],
    "t.id = s.id AND t.p = s.p": lambda t, s: None not in (t[0], t[1]) and t[:2] == s[:2],
    "t.id = s.id AND t.p = 'x'": lambda t, s: t[0] is not None and t[0] == s[0] and t[1] == "x",
    "s.id = t.id + 1": lambda t, s: t[0] is not None and t[0] + 1 == s[0],
    "false": lambda t, s: False,
}


@dataclass(frozen=True)
class Clause:
    kind: str
    action: str
    condition: tuple[str, Callable[..., Any]] | None
    values: Any = None

    def takes(self, *rows: Row) -> bool:
        return self.condition is None or self.condition[1](*rows) is True


@dataclass
class Outcome:
    rows: list[Row]
    feed: Counter[tuple[str, Row]] = field(default_factory=Counter)
    ambiguous: bool = False


def oracle(target: list[Row], source: list[Row], on: str, clauses: list[Clause]) -> Outcome:
    joins = _JOINS[on]
    of = {k: [c for c in clauses if c.kind == k] for k in ("matched", "not", "by_source")}
    out = Outcome([])
    lenient = [(c.action, c.condition) for c in of["matched"]] == [("delete", None)]
    for t in target:
        pairs = [s for s in source if joins(t, s)]
        new: Row | None = t
        if pairs:
            hits = [(c, s) for s in pairs if (c := next((c for c in of["matched"] if c.takes(t, s)), None))]
            if len(hits) > 1 and not lenient:
                out.ambiguous = True
            if hits:
                clause, s = hits[0]
                new = None if clause.action == "delete" else clause.values[1](t, s)
                _note(out, t, new)
        else:
            change = next((c for c in of["by_source"] if c.takes(t)), None)
            if change is not None:
                new = None if change.action == "delete" else change.values[1](t)
                _note(out, t, new)
        if new is not None:
            out.rows.append(new)
    for s in source:
        if not any(joins(t, s) for t in target):
            insert = next((c for c in of["not"] if c.takes(s)), None)
            if insert is not None:
                out.rows.append(insert.values[1](s))
                out.feed["insert", out.rows[-1]] += 1
    return out


def _note(out: Outcome, old: Row, new: Row | None) -> None:
    if new is None:
        out.feed["delete", old] += 1
    else:
        out.feed["update_preimage", old] += 1
        out.feed["update_postimage", new] += 1


def _some(draw: Any, kind: str, conditions: list[Any], actions: list[tuple[str, list[Any]]]) -> list[Clause]:
    result = []
    for left in range(draw(st.integers(0, 2)), 0, -1):
        action, values = draw(st.sampled_from(actions))
        optional = left == 1 and draw(st.booleans())  # only the last of a kind may have no condition
        condition = None if optional else draw(st.sampled_from(conditions))
        result.append(Clause(kind, action, condition, draw(st.sampled_from(values)) if values else None))
    return result


@st.composite
def merges(draw: Any) -> tuple[list[list[Row]], list[Row], str, list[Clause], dict[str, str], bool]:
    def rows(most: int, *, unique: bool = False) -> list[Row]:
        ids = st.one_of(st.none(), st.integers(0, 9))
        row = st.tuples(ids, st.sampled_from(["x", "y", None]), st.one_of(st.none(), st.integers(0, 5)))
        result: list[Row] = draw(st.lists(row, max_size=most, unique_by=(lambda r: (r[0],)) if unique else None))
        return result

    files = [rows(6) for _ in range(draw(st.integers(1, 3)))]
    clauses = [
        *_some(draw, "matched", _BOTH, [("update", _UPDATES), ("delete", [])]),
        *_some(draw, "not", _SOURCE, [("insert", _INSERTS)]),
        *_some(draw, "by_source", _TARGET, [("update", _CHANGES), ("delete", [])]),
    ]
    if not clauses:
        clauses = [Clause("matched", "update", None, _UPDATES[0])]
    clauses = draw(st.permutations(clauses)) if len({c.kind for c in clauses}) == len(clauses) else clauses
    properties = {
        "delta.enableDeletionVectors": draw(st.sampled_from(["true", "false"])),
        "delta.enableChangeDataFeed": draw(st.sampled_from(["true", "false"])),
        "delta.enableRowTracking": draw(st.sampled_from(["true", "false"])),
    }
    source = rows(8, unique=draw(st.booleans()) or draw(st.booleans()))
    return files, source, draw(st.sampled_from(list(_JOINS))), list(clauses), properties, draw(st.booleans())


def _table(rows: list[Row]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], []]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


def _rows(table: pa.Table) -> Counter[Row]:
    return Counter(zip(*(table[n].to_pylist() for n in _SCHEMA.names), strict=True))


def build(files: list[list[Row]], properties: dict[str, str], *, partitioned: bool) -> ArrowDeltaTable:
    uri = new_uri()
    for i, rows in enumerate(files):
        first = {"properties": properties, "partition_by": ["p"] if partitioned else None} if i == 0 else {}
        trilake.write(_table(rows), uri, mode="append", **first)  # type: ignore[arg-type]
    result = trilake.open(uri)
    assert isinstance(result, ArrowDeltaTable)
    return result


def merged(table: ArrowDeltaTable, source: Any, on: str, clauses: list[Clause]) -> Any:
    builder = table.merge(source, on, "s", "t")
    for c in clauses:
        condition = None if c.condition is None else c.condition[0]
        values: Any = None if c.values is None else c.values[0]
        if c.kind == "matched" and c.action == "delete":
            builder = builder.when_matched_delete(condition)
        elif c.kind == "matched":
            builder = (
                builder.when_matched_update_all(condition)
                if values is None
                else builder.when_matched_update(values, condition)
            )
        elif c.kind == "not":
            builder = (
                builder.when_not_matched_insert_all(condition)
                if values is None
                else builder.when_not_matched_insert(values, condition)
            )
        elif c.action == "delete":
            builder = builder.when_not_matched_by_source_delete(condition)
        else:
            builder = builder.when_not_matched_by_source_update(values, condition)
    return builder.execute()


@settings(max_examples=examples(30))
@given(merges())
def test_merges_match_an_oracle(case: Any) -> None:
    files, source, on, clauses, properties, partitioned = case
    table = build(files, properties, partitioned=partitioned)
    expected = oracle([r for f in files for r in f], source, on, clauses)
    if expected.ambiguous:
        with pytest.raises(AmbiguousMergeError):
            merged(table, _table(source), on, clauses)
        assert table.refresh().version == table.version
        assert _files(table) == set(table.files()["path"].to_pylist())
        return
    result = merged(table, _table(source), on, clauses)
    after = table.refresh()
    assert _rows(after.to_arrow()) == Counter(expected.rows)
    feed = expected.feed
    assert result.num_updated_rows == sum(n for (k, _), n in feed.items() if k == "update_preimage")
    assert result.num_deleted_rows == sum(n for (k, _), n in feed.items() if k == "delete")
    assert result.num_inserted_rows == sum(n for (k, _), n in feed.items() if k == "insert")
    assert result.version == after.version
    assert result.committed is bool(feed)
    assert result.metrics["numSourceRows"] == len(source)
    if properties["delta.enableChangeDataFeed"] == "true" and feed:
        changes = after.changes(after.version)
        kinds = changes["_change_type"].to_pylist()
        actual = Counter(
            (k, r) for k, r in zip(kinds, zip(*(changes[n].to_pylist() for n in _SCHEMA.names)), strict=True)
        )
        assert actual == feed


def _files(table: ArrowDeltaTable) -> set[str]:
    """The Parquet files in the table's folder."""
    return {o.key for o in table.log.store.list() if o.key.endswith(".parquet")}
