"""Log compaction: one file that replaces a run of commits.

Protocol: *Log Compaction Files*.  ``x.y.compacted.json`` holds the reconciled actions of the commits ``x`` to ``y``.
Tombstones stay, since they cancel files from before the run.  ``commitInfo`` and ``cdc`` actions are left out: the
commits, which stay, have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa

from trilake.delta.log.log import DeltaLog, check_same_file
from trilake.delta.log.segment import compacted_key
from trilake.delta.log.snapshot import apply, empty_state
from trilake.delta.protocol.actions import FILE_ACTIONS, ActionBatch
from trilake.errors import InvalidArgumentError, ObjectExistsError, VersionNotFoundError
from trilake.expr.terms.engine import Query

#: Up to this many file actions, plain Python is faster than loading DuckDB and running a query.
_FEW = 300


def compact_log(log: DeltaLog, start: int, end: int) -> str | None:
    """Write the compaction file of the versions ``start`` to ``end``, both included.

    Returns its key, or ``None`` if the file would be empty.  Keeps an existing file.  Raises ``InvalidArgumentError``
    unless ``0 <= start < end``, and ``VersionNotFoundError`` if the log lacks one of these commits.
    """
    if not 0 <= start < end:
        raise InvalidArgumentError(
            f"a log compaction must cover at least two versions, got {start} to {end}", help="pass start < end"
        )
    commits = log.commits(start, end)
    if len(commits) != end - start + 1:
        message = f"the log does not have all commits from version {start} to {end}"
        help = "compact versions that are committed and not yet cleaned up"
        raise VersionNotFoundError(message, help=help, file=log.store.uri)
    content = compacted(log.parse(commits), log.engine.query)
    if not content:
        return None
    check_same_file(log, commits[-1][1])
    key = compacted_key(start, end)
    with suppress(ObjectExistsError):
        log.store.put_if_absent(key, content)
    return key


def compacted(batch: ActionBatch, query: Query) -> bytes:
    """The content of a compaction file."""
    files = apply(empty_state(), ActionBatch(batch.add, batch.remove, batch.cdc))
    lines = [orjson.dumps(action).decode() for action in _reconciled(batch)]
    for kind, table in (("add", files.adds), ("remove", files.removes)):
        lines += json_lines(kind, table, query)
    return "".join(f"{line}\n" for line in lines).encode()


def _reconciled(batch: ActionBatch) -> Iterator[Mapping[str, Any]]:
    """The rare actions in force after the batch; a removed domain stays, like a tombstone."""
    for kind in ("protocol", "metaData"):
        actions = batch.of(kind)
        if actions:
            yield {kind: actions[-1][1]}
    for kind, key in (("txn", "appId"), ("domainMetadata", "domain")):
        newest = {str(data.get(key)): data for _, data in batch.of(kind)}
        for data in newest.values():
            yield {kind: data}


def json_lines(kind: str, files: pa.Table, query: Query) -> list[str]:
    """File actions of one kind as the lines of a commit; null fields are left out.

    >>> from trilake.delta.engine import Engine
    >>> from trilake.delta.log.snapshot import empty_state
    >>> json_lines("add", empty_state().adds, Engine().query)
    []
    """
    if files.num_rows <= _FEW:
        rows = files.to_pylist(maps_as_pydicts="lossy")
        return [orjson.dumps({kind: _stated(row, FILE_ACTIONS[kind])}).decode() for row in rows]
    lines: list[str] = query(
        f"""select '{{"{kind}":' || {_object(FILE_ACTIONS[kind])} || '}}' as line from files""", files=files
    )["line"].to_pylist()
    return lines


def _stated(row: Mapping[str, Any], type_: pa.StructType) -> dict[str, Any]:
    fields = ((f, row[f.name]) for f in type_ if row[f.name] is not None)
    return {f.name: _stated(value, f.type) if pa.types.is_struct(f.type) else value for f, value in fields}


def _object(type_: pa.StructType, at: str = "") -> str:
    """SQL for the JSON object of a struct; ``concat_ws`` skips nulls."""
    parts = []
    for f in type_:
        column = f'{at}"{f.name}"'
        if pa.types.is_struct(f.type):
            value = f"case when {column} is not null then {_object(f.type, f'{column}.')} end"
        else:
            value = f"to_json({column})::varchar"
        parts.append(f"""'"{f.name}":' || {value}""")
    return f"'{{' || concat_ws(',', {', '.join(parts)}) || '}}'"
