"""The newest commits of a Delta table and their schema changes, read with bounded effort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from trilake.common.text import plain, plural, time_text
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.commits import parse_rare
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, StructType
from trilake.errors import TrilakeError
from trilake.storage.base import ObjectMeta
from trilake.table.report_facts import COMMITS, Commits, SchemaChange

#: Limits: commits that are read, bytes of them read whole, and bytes from the start of larger ones, where all known
#: writers put actions other than files.
_COMMITS, _WHOLE, _BEGINNING = 1_000, 1 << 22, 1 << 16
#: Most bytes read of all commits together.
_BUDGET = 1 << 25
#: Most column changes listed per version.
_CHANGES = 20

_SHOWN_METRICS = {
    "numOutputRows": "rows written",
    "numFiles": "files",
    "numAddedFiles": "files added",
    "numRemovedFiles": "files removed",
    "numDeletedRows": "rows deleted",
    "numUpdatedRows": "rows updated",
    "numTargetRowsInserted": "rows inserted",
    "numTargetRowsUpdated": "rows updated",
    "numTargetRowsDeleted": "rows deleted",
}


@dataclass(frozen=True)
class History:
    """The newest commits, their column changes, and notes about both."""

    commits: Commits
    schema_changes: tuple[SchemaChange, ...]
    notes: tuple[str, ...] = ()


def read_history(log: DeltaLog, snapshot: Snapshot) -> History:
    """Read the newest of the commits up to the snapshot's version."""
    commits = log.commits(end=snapshot.version)
    chosen, spent = list[tuple[int, ObjectMeta]](), 0
    for version, file in reversed(commits[-_COMMITS:]):
        spent += file.size if file.size <= _WHOLE else _BEGINNING
        if spent > _BUDGET and chosen:
            break
        chosen.append((version, file))
    chosen.reverse()
    actions, damaged = _actions(log, chosen)
    times = _times(chosen, actions)
    notes = [
        f"{plural(damaged, 'commit')} could not be read, and {'is' if damaged == 1 else 'are'} shown without details"
    ]
    table = pa.Table.from_pylist(
        [_row(v, times[v], actions.get(v, {}).get("commitInfo") or {}) for v, _ in reversed(chosen)], COMMITS
    )
    complete = bool(chosen) and chosen[0][0] == 0
    changes = _schema_changes(actions, times, complete=complete)
    return History(Commits(table, len(commits) - len(chosen), len(commits)), changes, tuple(notes if damaged else ()))


def _actions(log: DeltaLog, commits: list[tuple[int, ObjectMeta]]) -> tuple[dict[int, dict[str, Any]], int]:
    small = [(v, c.key) for v, c in commits if c.size <= _WHOLE]
    contents = [(v, key, data) for (v, key), data in zip(small, log.read_files([key for _, key in small]), strict=True)]
    contents += [
        (v, c.key, _beginning(log.store.read_range(c.key, 0, _BEGINNING))) for v, c in commits if c.size > _WHOLE
    ]
    actions: dict[int, dict[str, Any]] = {}
    try:
        rare, damaged = parse_rare(contents).rare, 0
    except TrilakeError:
        rare, damaged = (), 0
        for one in contents:
            try:
                rare += parse_rare([one]).rare
            except TrilakeError:
                damaged += 1
    for version, kind, data in rare:
        if kind in ("commitInfo", "metaData") and isinstance(data, Mapping):
            actions.setdefault(version, {})[kind] = data
    return actions, damaged


def _beginning(data: pa.Buffer) -> pa.Buffer:
    """The complete lines at the start of a commit."""
    raw = data.to_pybytes()
    return pa.py_buffer(raw[: raw.rfind(b"\n") + 1] or raw)


def _times(commits: list[tuple[int, ObjectMeta]], actions: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """When each commit happened, by itself or by its file; never decreasing."""
    times: dict[int, int] = {}
    last: int | None = None
    for version, file in commits:
        stated = (actions.get(version, {}).get("commitInfo") or {}).get("inCommitTimestamp")
        time = stated if isinstance(stated, int) and abs(stated) < 1 << 53 else file.modified_ms
        last = time if last is None or time > last else last + 1
        times[version] = last
    return times


def _row(version: int, time_ms: int, info: Mapping[str, Any]) -> dict[str, Any]:
    def text(name: str) -> str | None:
        value = info.get(name)
        return plain(value) if isinstance(value, str) and value else None

    stated = info.get("operationMetrics")
    metrics = stated if isinstance(stated, Mapping) else {}
    counts = [f"{_number(metrics[k])} {what}" for k, what in _SHOWN_METRICS.items() if str(metrics.get(k, "0")) != "0"]
    return {
        "version": version,
        "timestamp": time_ms,
        "operation": text("operation"),
        "by": text("userName") or text("engineInfo"),
        "metrics": ", ".join(counts) or None,
    }


def _number(value: object) -> str:
    digits = str(value)
    return f"{int(digits):,}" if digits.isascii() and digits.isdigit() and len(digits) < 19 else plain(digits, 20)


# --- columns ---------------------------------------------------------------------------------------------------------


def _schema_changes(
    actions: Mapping[int, Mapping[str, Any]], times: Mapping[int, int], *, complete: bool
) -> tuple[SchemaChange, ...]:
    """Versions that changed columns, oldest first; the columns of the first one read only count as a change in version
    0.
    """
    schema_changes: list[SchemaChange] = []
    before: dict[str, str] | None = {} if complete else None
    for version in sorted(actions):
        if "metaData" not in actions[version]:
            continue
        try:
            columns = _columns(Metadata.from_json(actions[version]["metaData"], version=version).schema)
        except TrilakeError:
            continue  # an unreadable version is not a change
        if before is not None and columns != before:
            changes = _changes(before, columns)
            schema_changes.append(SchemaChange(version, time_text(times[version]), changes))
        before = columns
    return tuple(schema_changes)


def _columns(type_: DataType, above: str = "") -> dict[str, str]:
    """The type of each column, including nested ones, by path."""
    types: dict[str, str] = {}
    if isinstance(type_, StructType):
        for f in type_.fields:
            path = f"{above}.{f.name}" if above else f.name
            nested = isinstance(f.type, StructType)
            types[path] = ("struct" if nested else str(f.type)) + ("" if f.nullable else " not null")
            types |= _columns(f.type, path) if nested else {}
    elif isinstance(type_, ArrayType | MapType):
        types[above] = str(type_)
    return types


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    out = [f"added {plain(c)}: {plain(t)}" for c, t in after.items() if c not in before]
    out += [f"dropped {plain(c)}" for c in before if c not in after]
    out += [f"{plain(c)}: {plain(before[c])} became {plain(t)}" for c, t in after.items() if before.get(c, t) != t]
    if not out:
        out = ["the order of the columns"]
    more = len(out) - _CHANGES
    return (*out[:_CHANGES], *((f"and {plural(more, 'more change')}",) if more > 0 else ()))
