"""Turn rows of a snapshot's files into ``add`` actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

#: Fields of an ``add`` action whose Arrow form differs from JSON.
_OTHER_FORM = ("partitionValues", "tags", "deletionVector")


def _as_json(name: str, value: Any) -> Any:
    if name == "partitionValues":
        return dict(value or ())
    if value is None or name not in _OTHER_FORM:
        return value
    return dict(value) if name == "tags" else {k: v for k, v in value.items() if v is not None}


def add_action(row: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The ``add`` action of a row of a snapshot's files, with some fields changed; ``None`` drops a field."""
    out = {name: _as_json(name, value) for name, value in {**row, **changes}.items()}
    return {"add": {k: v for k, v in out.items() if v is not None}}


def add_actions(files: pa.Table, **changes: Any) -> list[dict[str, Any]]:
    """The ``add`` actions of all files of a snapshot, each with the same changes."""
    names, columns, gaps = list[str](), list[Sequence[Any]](), False
    for name in files.column_names:
        nulls = files[name].null_count if name != "partitionValues" else 0
        if name in changes or (nulls and nulls == files.num_rows):
            continue
        values = files[name].to_pylist()
        names.append(name)
        columns.append([_as_json(name, v) for v in values] if name in _OTHER_FORM else values)
        gaps = gaps or nulls > 0
    names += changes
    rows = zip(*columns, *map(repeat, changes.values()))
    if gaps:
        return [{"add": {k: v for k, v in zip(names, row) if v is not None}} for row in rows]
    return [{"add": dict(zip(names, row))} for row in rows]
