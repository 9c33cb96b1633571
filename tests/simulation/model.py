"""Effects of operations on rows: the oracle in plain Python for all formats."""

from __future__ import annotations

import random

from tests.simulation.plan import Op

#: Key and value by unique row id.
Rows = dict[int, tuple[int, str]]

KEYS = 4


def new_rows(op: Op) -> Rows:
    """Return the rows of an operation, the same on each call."""
    rng = random.Random(op.args[1])
    return {op.number * 100 + i: (rng.randrange(KEYS), f"v{op.number}") for i in range(rng.randint(1, 3))}


def source_rows(op: Op) -> Rows:
    """Return the source of a merge: each key once."""
    found: Rows = {}
    for id, (k, v) in new_rows(op).items():
        if k not in {key for key, _ in found.values()}:
            found[id] = (k, v)
    return found


def upserted(op: Op) -> Rows:
    """Return the source of a merge by id: new rows, and one that may exist."""
    return {**new_rows(op), 1 + op.args[0]: (op.args[1] % KEYS, f"w{op.number}")}


def effect(op: Op, rows: Rows, old: Rows | None = None) -> Rows:
    """Return the rows after an operation on ``rows``; ``old`` are those of the version that a restore names."""
    key = op.args[0]
    match op.kind:
        case "append" | "batch" | "txn" | "given" | "elsewhere":
            return {**rows, **new_rows(op)}
        case "overwrite" | "replace":
            return new_rows(op)
        case "dynamic":
            new = new_rows(op)
            parts = {k % 2 for k, _ in new.values()}
            return {i: r for i, r in rows.items() if r[0] % 2 not in parts} | new
        case "keyed":
            new = new_rows(op)
            keys = {k for k, _ in new.values()}
            return {i: r for i, r in rows.items() if r[0] not in keys} | new
        case "where":
            return {i: r for i, r in rows.items() if r[0] != key} | {i: (key, v) for i, (_, v) in new_rows(op).items()}
        case "delete":
            return {i: r for i, r in rows.items() if r[0] != key}
        case "update":
            return {i: (k, f"u{op.number}") if k == key else (k, v) for i, (k, v) in rows.items()}
        case "merge":
            source = source_rows(op)
            by_key = dict(source.values())
            present = {k for k, _ in rows.values()}
            merged = {i: (k, by_key[k]) if k in by_key else (k, v) for i, (k, v) in rows.items()}
            return merged | {i: (k, v) for i, (k, v) in source.items() if k not in present}
        case "insert":
            present = {k for k, _ in rows.values()}
            return {**rows, **{i: (k, v) for i, (k, v) in source_rows(op).items() if k not in present}}
        case "upsert":
            return {**rows, **upserted(op)}
        case "prune":
            source = upserted(op)
            return {i: r for i, r in rows.items() if i in source or r[0] != key} | source
        case "unmatch":
            return {i: r for i, r in rows.items() if i not in upserted(op)}
        case "refresh":
            source = upserted(op)
            return {i: source[i] if i in source and source[i][0] == r[0] else r for i, r in rows.items()}
        case "restore":
            assert old is not None
            return dict(old)
    return dict(rows)


#: Operations that change rows.
CHANGES = frozenset(
    (
        "append",
        "batch",
        "txn",
        "given",
        "replace",
        "overwrite",
        "dynamic",
        "keyed",
        "where",
        "delete",
        "update",
        "merge",
        "insert",
        "upsert",
        "prune",
        "unmatch",
        "refresh",
        "elsewhere",
        "restore",
        "stream",
    )
)


def difference(expected: Rows, actual: Rows) -> str:
    """Describe the difference briefly."""
    lost = sorted(expected.keys() - actual.keys())
    extra = sorted(actual.keys() - expected.keys())
    other = sorted(i for i in expected.keys() & actual.keys() if expected[i] != actual[i])
    parts = []
    if lost:
        parts.append(f"rows {lost} are lost")
    if extra:
        parts.append(f"rows {extra} should not be there")
    if other:
        parts.append(f"rows {other} differ: {[actual[i] for i in other]} in place of {[expected[i] for i in other]}")
    return "; ".join(parts)
