"""Log compaction: one file that replaces a run of commits.

Protocol: *Log Compaction Files*.  ``x.y.compacted.json`` holds the reconciled actions of the commits ``x`` to ``y``.
Tombstones stay, since they cancel files from before the run.  ``commitInfo`` and ``cdc`` actions are left out: the
commits, which stay, have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa

from trilake.delta.log.log import DeltaLog, check_same_file
from trilake.delta.log.segment import compacted_key
from trilake.delta.log.snapshot import apply, empty_state
from trilake.delta.protocol.actions import ActionBatch
from trilake.errors import InvalidArgumentError, ObjectExistsError, VersionNotFoundError

#: File actions that are Python objects at a time.
_AT_ONCE = 64 * 1024


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
    content = compacted(log.parse(commits))
    if not content:
        return None
    check_same_file(log, commits[-1][1])
    key = compacted_key(start, end)
    with suppress(ObjectExistsError):
        log.store.put_if_absent(key, content)
    return key


def compacted(batch: ActionBatch) -> bytes:
    """The content of a compaction file."""
    files = apply(empty_state(), ActionBatch(batch.add, batch.remove, batch.cdc))
    lines = chain(
        map(orjson.dumps, _reconciled(batch)), json_lines("add", files.adds), json_lines("remove", files.removes)
    )
    return b"".join(line + b"\n" for line in lines)


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


def json_lines(kind: str, files: pa.Table) -> Iterator[bytes]:
    """File actions of one kind as the lines of a commit; null fields are left out."""
    for batch in files.to_batches(max_chunksize=_AT_ONCE):
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
        for values in zip(*columns, strict=True):
            action = {k: v for k, v in zip(batch.schema.names, values, strict=True) if v is not None}
            if (vector := action.get("deletionVector")) is not None:
                action["deletionVector"] = {k: v for k, v in vector.items() if v is not None}
            yield orjson.dumps({kind: action})
