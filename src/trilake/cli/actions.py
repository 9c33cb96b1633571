"""What each version of a table's log says, action by action."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from trilake.cli.tables import not_for
from trilake.cli.values import cell
from trilake.common.text import printable, size_text
from trilake.errors import CorruptLogError
from trilake.lance.versions.versions import list_versions
from trilake.table.table import Table


def log_entries(table: Table, start: int | None, end: int | None, limit: int) -> Iterator[dict[str, Any]]:
    """The versions from ``start`` to ``end``, newest first, at most ``limit`` of them unless that is 0.

    Each has ``version``, ``file`` and ``actions``.  Raises ``InvalidArgumentError`` for a format without a log.
    """
    if table.format == "delta":
        return _delta(table, start, end, limit)
    if table.format == "lance":
        return _lance(table, start, end, limit)
    raise not_for(table, "log", "trilake files lists their files")


def _chosen(versions: Iterable[int], table: Table, start: int | None, end: int | None, limit: int) -> list[int]:
    newest = table.version if end is None else end
    in_range = sorted((v for v in versions if (start or 0) <= v <= (newest or 0)), reverse=True)
    return in_range[:limit] if limit else in_range


def _delta(table: Any, start: int | None, end: int | None, limit: int) -> Iterator[dict[str, Any]]:
    commits = dict(table.log.commits(start or 0, table.version if end is None else end))
    for version in _chosen(commits, table, start, end, limit):
        key = commits[version].key
        yield {"version": version, "file": key, "actions": list(_actions(table.log.store.read(key), key))}


def _actions(data: Any, key: str) -> Iterator[dict[str, Any]]:
    """The actions of a commit, as they are written."""
    for number, line in enumerate(bytes(data).splitlines(), 1):
        if not line.strip():
            continue
        try:
            action = orjson.loads(line)
        except orjson.JSONDecodeError as e:
            raise CorruptLogError(f"line {number} of the commit is not JSON: {e}", file=key) from e
        if not isinstance(action, dict):
            raise CorruptLogError(f"line {number} of the commit is not an action", file=key)
        yield action


def _lance(table: Any, start: int | None, end: int | None, limit: int) -> Iterator[dict[str, Any]]:
    from trilake.lance.versions.transaction import read_manifest

    store = table.snapshot.store
    listing = list_versions(store)
    for version in _chosen(listing.versions, table, start, end, limit):
        key = listing.key(version)
        manifest = read_manifest(store, key, version)
        actions: list[dict[str, Any]] = [{"transaction": {"file": manifest.transaction_file or None}}]
        actions += [{"fragment": _fragment(f)} for f in manifest.fragments]
        actions += [{"index": {"name": i.name, "uuid": str(i.uuid)}} for i in manifest.indices]
        yield {"version": version, "file": key, "actions": actions}


def _fragment(fragment: Any) -> dict[str, Any]:
    deletion = fragment.deletion_file
    return {
        "id": fragment.id,
        "rows": fragment.physical_rows,
        "files": [f.key for f in fragment.files],
        "deletion_file": None if deletion is None else deletion.key(fragment.id),
    }


# --- for people ------------------------------------------------------------------------------------------------------


def log_lines(entries: Iterable[dict[str, Any]], most: int) -> Iterator[str]:
    """The entries as lines: a head for each version, and below it at most ``most`` actions, all for 0."""
    for entry in entries:
        yield f"version {entry['version']}  {printable(entry['file'])}"
        actions = entry["actions"]
        for action in actions[: most or None]:
            for name, content in action.items():
                yield f"  {printable(name):<14} {_brief(name, content)}"
        left = len(actions) - most
        if most and left > 0:
            yield f"  ... and {left:,} more actions (--actions 0 shows all)"


def _brief(name: str, content: Any) -> str:
    """An action on one line."""
    if not isinstance(content, dict):
        return cell(content)
    if name in ("add", "remove", "cdc"):
        return _file(content)
    return "  ".join(f"{printable(str(k))}={_short(v)}" for k, v in content.items() if v not in (None, {}, []))


def _short(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text):,} characters; --json shows all)"


def _file(action: dict[str, Any]) -> str:
    parts = [cell(action.get("path"))]
    size = action.get("size")
    if isinstance(size, int):
        parts.append(size_text(size))
    stats = action.get("stats")
    if isinstance(stats, str):
        try:
            rows = orjson.loads(stats).get("numRecords")
        except (orjson.JSONDecodeError, AttributeError):
            rows = None
        if rows is not None:
            parts.append(f"{cell(rows)} rows")
    if action.get("deletionVector"):
        vector = action["deletionVector"]
        parts.append(f"{cell(vector.get('cardinality') if isinstance(vector, dict) else vector)} rows deleted")
    if action.get("dataChange") is False:
        parts.append("no data change")
    return "  ".join(parts)
