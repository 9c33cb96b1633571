"""Format the actions of a table's log as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from trilake.cli.values import cell
from trilake.common.text import format_size, plural, printable


def log_lines(entries: Iterable[dict[str, Any]], most: int) -> Iterator[str]:
    """Format log entries: a line per version, followed by at most ``most`` actions; 0 for all."""
    for entry in entries:
        yield f"version {entry['version']}  {printable(entry['file'])}"
        actions = entry["actions"]
        for action in actions[: most or None]:
            for name, content in action.items():
                yield f"  {printable(name):<14} {_brief(name, content)}"
        remaining = len(actions) - most
        if most and remaining > 0:
            yield f"  ... and {plural(remaining, 'more action')} (--actions 0 shows all)"


def _brief(name: str, content: Any) -> str:
    if not isinstance(content, dict):
        return cell(content)
    if name in ("add", "remove", "cdc"):
        return _file(content)
    return "  ".join(f"{printable(str(k))}={_short(v)}" for k, v in content.items() if v not in (None, {}, []))


def _short(value: Any) -> str:
    string = cell(value)
    return string if len(string) <= 300 else f"{string[:300]}... ({len(string):,} characters; --json shows all)"


def _file(action: dict[str, Any]) -> str:
    parts = [cell(action.get("path"))]
    size = action.get("size")
    if isinstance(size, int):
        parts.append(format_size(size))
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
