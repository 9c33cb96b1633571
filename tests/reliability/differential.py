"""One random table, operations and filters: compare trilake with an oracle and other readers.

A case is data: it is made from a seed, run, and shrunk while it still fails.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

import trilake
from tests.reliability.conditions import Condition, Row, literal, random_condition
from tests.reliability.random_tables import NESTED, TYPES, arrow, random_value, rows_of
from trilake import lance
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TrilakeError, UnsupportedExpressionError

#: Types of partition columns, and types of Lance's legacy format.
_PARTITIONS = ("int32", "string", "date", "boolean", "timestamp", "decimal(9,2)")
_LANCE = ("int8", "int16", "int32", "int64", "float", "double", "string", "binary", "boolean", "date", "struct")


@dataclass(frozen=True)
class Operation:
    """``append``, ``delete``, ``update``, ``merge`` or ``overwrite``."""

    name: str
    condition: Condition | None = None
    rows: tuple[Row, ...] = ()
    column: str = ""
    value: Any = None


@dataclass(frozen=True)
class Case:
    """A table with operations and filters."""

    seed: int
    format: str
    kinds: dict[str, str]
    rows: tuple[Row, ...]
    operations: tuple[Operation, ...]
    filters: tuple[Condition, ...]
    partition: str | None = None
    properties: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        done = [
            f"{o.name} {o.condition.sql() if o.condition else ''} {o.column} {len(o.rows)} rows"
            for o in self.operations
        ]
        return (
            f"seed {self.seed}: {self.format} {self.kinds}, partition {self.partition}, {dict(self.properties)}\n"
            f"  rows {list(self.rows)}\n  operations {done} {[o.rows for o in self.operations if o.rows]}\n"
            f"  filters {[f.sql() for f in self.filters]}"
        )


def random_case(seed: int) -> Case:
    """Return the case of a seed."""
    random = Random(seed)
    form = "lance" if random.random() < 0.25 else "delta"
    offered = list(_LANCE if form == "lance" else TYPES)
    kinds = {"id": "int64", **{f"c{i}": k for i, k in enumerate(random.sample(offered, random.randint(2, 6)))}}
    partition = None
    if form == "delta" and random.random() < 0.35:
        partition = "p"
        kinds["p"] = random.choice(_PARTITIONS)
    count = random.choice((1, 5, 40, 40))
    ids = iter(range(10_000))
    masks = form == "lance" and random.random() < 0.5

    def value(kind: str) -> Any:
        """Without masks, Lance's format can store nulls only in types with lengths."""
        while True:
            result = random_value(kind, random)
            if form == "delta" or (masks and kind != "struct") or kind in ("string", "binary"):
                return result
            if result is not None and (kind != "struct" or result["x"] is not None):
                return result

    def make(number: int) -> tuple[Row, ...]:
        few = [value(kinds["p"]) for _ in range(3)] if partition else []
        return tuple(
            {
                c: next(ids) if c == "id" else random.choice(few) if c == partition else value(k)
                for c, k in kinds.items()
            }
            for _ in range(number)
        )

    rows = make(count)
    values: dict[str, list[Any]] = {c: [r[c] for r in rows] for c in kinds}
    columns = {c: k for c, k in kinds.items() if k not in NESTED}
    for c, k in kinds.items():
        if k == "struct":
            for field, kind in (("x", "int32"), ("y", "string")):
                columns[f"{c}.{field}"] = kind
                values[f"{c}.{field}"] = [None if r[c] is None else r[c][field] for r in rows]
        elif k in NESTED:
            columns[c], values[c] = "nested", []

    def condition() -> Condition:
        return random_condition(random, columns, values)

    operations = []
    for _ in range(random.randint(0, 3)):
        name = random.choice(("append", "delete", "update", "merge") + (("overwrite",) if form == "delta" else ()))
        if name == "append":
            operations.append(Operation(name, rows=make(random.choice((1, 7)))))
        elif name == "delete":
            operations.append(Operation(name, condition()))
        elif name == "update":
            column = random.choice(
                [c for c, k in kinds.items() if k not in NESTED and c not in ("id", partition)] or ["id"]
            )
            if column != "id":
                operations.append(Operation(name, condition(), column=column, value=value(kinds[column])))
        elif name == "merge":
            old = [{**r, "id": random.choice(rows)["id"]} for r in make(3)]
            unique = {r["id"]: r for r in (*old, *make(2))}
            operations.append(Operation(name, rows=tuple(unique.values())))
        else:
            where = condition()
            operations.append(Operation(name, where, rows=tuple(r for r in make(20) if where.of(r) is True)))
    properties = {"nulls": "mask"} if masks else {}
    if form == "delta":
        if random.random() < 0.5:
            properties["delta.enableDeletionVectors"] = "true"
        if random.random() < 0.25:
            properties["delta.columnMapping.mode"] = random.choice(("name", "id"))
    filters = tuple(condition() for _ in range(random.randint(3, 8)))
    return Case(seed, form, kinds, rows, tuple(operations), filters, partition, tuple(properties.items()))


# --- the oracle ------------------------------------------------------------------------------------------------------


def stored(case: Case, row: Row) -> Row:
    """Return a row as stored: an empty string is null in a partition column, as in Delta's protocol, and in any column
    of a Lance dataset without masks, whose format stores string lengths only."""
    if case.partition and row[case.partition] == "":
        return {**row, case.partition: None}
    if case.format == "lance":  # masks cover whole columns
        masks = bool(case.properties)
        return {c: v if masks and not isinstance(v, dict) else _null_if_empty(v) for c, v in row.items()}
    return row


def _null_if_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _null_if_empty(v) for k, v in value.items()}
    return None if isinstance(value, str | bytes) and not value else value


def expected(case: Case) -> list[Row]:
    """Return the rows after all operations."""
    rows = [stored(case, r) for r in case.rows]
    for op in case.operations:
        new = [stored(case, r) for r in op.rows]
        if op.name == "merge":
            by_id = {r["id"]: r for r in new}
            rows = [by_id.pop(r["id"], r) for r in rows] + list(by_id.values())
            continue
        if op.condition is not None:
            hit = [op.condition.of(r) is True for r in rows]
            if op.name == "update":
                rows = [stored(case, {**r, op.column: op.value}) if h else r for r, h in zip(rows, hit, strict=True)]
            else:
                rows = [r for r, h in zip(rows, hit, strict=True) if not h]
        rows += new
    return rows


# --- the library -----------------------------------------------------------------------------------------------------


def written(case: Case, uri: str) -> None:
    """Write the table and run the operations; for Lance in the legacy format, whose nulls the oracle knows."""
    version = {"dataStorageVersion": "legacy"} if case.format == "lance" else {}
    trilake.write(
        arrow(case.rows, case.kinds),
        uri,
        format=case.format,
        partition_by=case.partition,
        properties=dict(case.properties) | version or None,
    )
    for op in case.operations:
        where = op.condition.sql() if op.condition else None
        data = arrow(op.rows, case.kinds)
        if op.name == "append":
            trilake.write(data, uri, mode="append", format=case.format)
        elif op.name == "overwrite":
            trilake.write(data, uri, mode="overwrite", replace_where=where)
        elif case.format == "lance":
            _of_lance(op, where, data, case, uri)
        else:
            table = trilake.open(uri)
            assert isinstance(table, ArrowDeltaTable)
            if op.name == "delete":
                table.delete(where)
            elif op.name == "update":
                table.update({op.column: literal(op.value, case.kinds[op.column], "spark")}, where)
            else:
                merge = table.merge(data, "target.id = source.id")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _of_lance(op: Operation, where: str | None, data: pa.Table, case: Case, uri: str) -> None:
    dataset = lance.dataset(uri)
    if op.name == "delete":
        assert where is not None
        dataset.delete(where)
    elif op.name == "update":
        dataset.update({op.column: literal(op.value, case.kinds[op.column], "spark")}, where)
    else:
        dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(data)


#: A reader of the table: its name, and its rows, or the ids of the rows that a filter keeps.  ``None`` if
#: the reader does not support it or the answer is not defined.
Peer = Callable[[Case, str, Condition | None], "dict[int, tuple[Any, ...]] | set[int] | None"]


def difference(case: Case, peers: dict[str, Peer] | None = None, counts: dict[str, int] | None = None) -> str | None:
    """Return the first wrong answer, or ``None``."""
    folder = tempfile.mkdtemp(prefix="trilake-differential-") if peers else None
    uri = f"{folder}/t" if folder else f"memory://differential-{uuid.uuid4()}"
    counts = {} if counts is None else counts
    try:
        try:
            written(case, uri)
        except UnsupportedExpressionError:
            counts["rejected"] = counts.get("rejected", 0) + 1
            return None
        truth = expected(case)
        table = trilake.open(uri)
        whole = rows_of(table.to_arrow())
        right = rows_of(arrow(truth, case.kinds))
        if whole != right:
            return f"trilake has {_unlike(whole, right)}"
        for name, peer in (peers or {}).items():
            theirs = peer(case, uri, None)
            counts[name] = counts.get(name, 0) + (theirs is not None)
            if theirs is not None and theirs != right:
                assert isinstance(theirs, dict)
                return f"{name} has {_unlike(theirs, right)}"
        for condition in case.filters:
            ids = {r["id"] for r in truth if condition.of(r) is True}
            try:
                result = set(table.to_arrow(columns=["id"], filter=condition.sql())["id"].to_pylist())
                number = table.count(condition.sql())
            except UnsupportedExpressionError:
                counts["rejected"] = counts.get("rejected", 0) + 1
                continue
            counts["filters"] = counts.get("filters", 0) + 1
            if result != ids or number != len(ids):
                return f"trilake: {condition.sql()} keeps {sorted(result)} ({number}), not {sorted(ids)}"
            for name, peer in (peers or {}).items():
                theirs = peer(case, uri, condition)
                counts[f"{name} filters"] = counts.get(f"{name} filters", 0) + (theirs is not None)
                if theirs is not None and theirs != ids:
                    return f"{name}: {condition.sql()} keeps {sorted(theirs)}, not {sorted(ids)}"
    except TrilakeError as e:
        return f"an error: {e}"
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return None


def _unlike(result: dict[int, Any], right: dict[int, Any]) -> str:
    parts = [
        f"id {i}: {result.get(i)} for {right.get(i)}"
        for i in sorted({*result, *right})
        if result.get(i) != right.get(i)
    ]
    return "; ".join(parts[:3])


# --- smaller ---------------------------------------------------------------------------------------------------------


def _smaller(case: Case) -> Iterator[Case]:
    for i in range(len(case.operations)):
        yield replace(case, operations=case.operations[:i] + case.operations[i + 1 :])
    if len(case.filters) > 1:
        for f in case.filters:
            yield replace(case, filters=(f,))
    if case.filters:
        yield replace(case, filters=())
    size = len(case.rows)
    for part in {size // 2, size // 4, 1} - {0}:
        for at in range(0, size, part):
            if size > part:
                yield replace(case, rows=case.rows[:at] + case.rows[at + part :])
    for i, op in enumerate(case.operations):
        others = (case.operations[:i], case.operations[i + 1 :])
        for j in range(len(op.rows)):
            yield replace(case, operations=(*others[0], replace(op, rows=op.rows[:j] + op.rows[j + 1 :]), *others[1]))
        for less in op.condition.smaller() if op.condition and op.name != "overwrite" else ():
            yield replace(case, operations=(*others[0], replace(op, condition=less), *others[1]))
    for i, f in enumerate(case.filters):
        for less in f.smaller():
            yield replace(case, filters=(*case.filters[:i], less, *case.filters[i + 1 :]))
    for key in dict(case.properties):
        yield replace(case, properties=tuple(p for p in case.properties if p[0] != key))
    used = {c for f in case.filters for c in f.columns()} | {o.column for o in case.operations}
    used |= {c for o in case.operations if o.condition for c in o.condition.columns()} | {"id"}
    used |= {case.partition} if case.partition else set()
    for column in case.kinds.keys() - used:
        yield replace(case, kinds={c: k for c, k in case.kinds.items() if c != column})


def smallest(case: Case, wrong: Callable[[Case], str | None], tries: int = 400) -> Case:
    """Return a minimal case that still fails."""
    while tries > 0:
        for less in _smaller(case):
            tries -= 1
            if tries <= 0 or wrong(less) is not None:
                break
        else:
            break
        if tries > 0:
            case = less
    return case
