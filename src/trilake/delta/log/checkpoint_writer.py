"""Writing checkpoints: the state of a snapshot in Parquet, and the hint that points at it.

Protocol: *Checkpoints*, *V2 Spec*, *Sidecar Files*, *Requirements for Writers*.  One file by default; several, by a
hash of the path, above ``part_size`` actions.  Files become visible as a whole and the hint is written last, so a
writer may die anywhere.

Of version 2, a top-level file of a unique name and sidecars with the file actions, where the table supports
``v2Checkpoint`` and its property ``delta.checkpointPolicy`` says ``v2``.  Sidecars come first: the top-level file makes
them visible all together, and what a writer leaves that dies before it is read by nobody and goes with log cleanup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.checkpoint import ADDS_TAG, SIDECARS_TAG
from trilake.delta.log.checkpoint_parts import (
    FileColumns,
    Piece,
    file_schema,
    rare_actions,
    slices,
    split,
    write_parquet,
)
from trilake.delta.log.last_checkpoint import make_hint
from trilake.delta.log.log import DeltaLog, Snapshot
from trilake.delta.log.segment import LAST_CHECKPOINT, SIDECARS, checkpoint_key, checkpoint_part_key, v2_checkpoint_key
from trilake.delta.protocol.schema import from_arrow
from trilake.errors import InvalidArgumentError, ObjectExistsError, ObjectNotFoundError
from trilake.parquet_files import DAMAGE, open_parquet
from trilake.runtime import Runtime
from trilake.storage.base import Store

#: Table property: actions of one file of a checkpoint, above which there are several.
PART_SIZE = "trilake.checkpoint.partSize"
DEFAULT_PART_SIZE = 5_000_000
#: Table property: ``parquet`` or ``json``, the format of the top-level file of version 2.
TOP_LEVEL_FORMAT = "trilake.checkpoint.topLevelFormat"
#: A longer description of the checkpoint's columns is left out of the hint, which every reader fetches.
_MAX_SCHEMA_BYTES = 16 * 1024


def write_checkpoint(
    log: DeltaLog, snapshot: Snapshot, runtime: Runtime, *, part_size: int | None = None, replace: bool = False
) -> None:
    """Write the checkpoint of ``snapshot`` and point ``_last_checkpoint`` at it, unless it points at a newer one.

    A checkpoint of this version that is there already stays as it is, if it can be opened: readers that have listed the
    log know its size, and may be reading it in pieces.

    Parameters
    ----------
    log: the table's log.
    snapshot: the state to write; its version must be committed.
    runtime: clock and ids.
    part_size: most actions of one file; by default the table's property ``trilake.checkpoint.partSize``.
    replace: write it anew, whatever is there: for whoever knows that it is false.

    Tombstones older than ``delta.deletedFileRetentionDuration`` are left out, as the protocol allows.  Raises
    ``InvalidArgumentError`` for a size that is no positive number.
    """
    removes = _without_expired(log.tombstones(snapshot), snapshot, runtime.clock_ms())
    whole = Piece(rare_actions(snapshot), snapshot.adds, removes)
    parts = max(1, -(-(whole.adds.num_rows + removes.num_rows) // _part_size(snapshot, part_size)))
    if _is_v2(snapshot):
        size, size_in_bytes, pointer = _write_v2(log.store, snapshot, whole, parts, runtime)
        hint = make_hint(
            snapshot.version,
            size=size,
            size_in_bytes=size_in_bytes,
            num_add_files=whole.adds.num_rows,
            v2_checkpoint=pointer,
        )
    else:
        hint = _write_classic(log, snapshot, whole, parts, replace=replace)
    if not _points_further(log, snapshot.version):
        log.store.put(LAST_CHECKPOINT, hint)


def _without_expired(removes: pa.Table, snapshot: Snapshot, now_ms: int) -> pa.Table:
    try:
        retention = snapshot.properties.duration_ms("delta.deletedFileRetentionDuration")
    except InvalidArgumentError:
        return removes  # not known for certain: they do no harm
    return removes.filter(pc.greater(pc.fill_null(removes["deletionTimestamp"], 0), now_ms - retention))


def _points_further(log: DeltaLog, version: int) -> bool:
    """Whether the hint names a newer checkpoint, and one that is there."""
    newest = log.hint()
    if newest is None or newest.version <= version:
        return False
    return any(v == newest.version for v, _ in log.listing(start=newest.version).checkpoints)


def _part_size(snapshot: Snapshot, part_size: int | None) -> int:
    text = snapshot.properties.text(PART_SIZE) if part_size is None else str(part_size)
    if text is None:
        return DEFAULT_PART_SIZE
    if not re.fullmatch(r"[1-9]\d{0,17}", text):
        raise InvalidArgumentError(f"{text!r} is no number of actions for a part of a checkpoint", help="1 or more")
    return int(text)


def _write_classic(log: DeltaLog, snapshot: Snapshot, whole: Piece, parts: int, *, replace: bool) -> bytes:
    store, version = log.store, snapshot.version
    columns = FileColumns.of(snapshot)
    schema = file_schema(columns, whole.rare)
    numbers = range(1, parts + 1)
    keys = [checkpoint_key(version)] if parts == 1 else [checkpoint_part_key(version, n, parts) for n in numbers]

    def write(key: str, piece: Piece, *, absent: bool = False) -> int:
        return write_parquet(store, key, schema, slices(piece, columns, schema), piece.num_rows, absent=absent)

    def hint(rows: int, size: int, described: Mapping[str, Any] | None = None) -> bytes:
        count = parts if parts > 1 else None
        adds = whole.adds.num_rows
        return make_hint(
            version, size=rows, size_in_bytes=size, num_add_files=adds, parts=count, checkpoint_schema=described
        )

    if parts > 1 and not replace and (there := _rows_and_size(store, keys)) is not None:
        return hint(*there)
    try:
        size = sum(write(k, p, absent=parts == 1 and not replace) for k, p in zip(keys, split(whole, parts)))
    except ObjectExistsError:
        there = _rows_and_size(store, keys)
        if there is not None:
            return hint(*there)
        size = write(keys[0], whole)
    described = from_arrow(schema)
    return hint(whole.num_rows, size, described.to_json() if len(described.json()) <= _MAX_SCHEMA_BYTES else None)


def _rows_and_size(store: Store, keys: Sequence[str]) -> tuple[int, int] | None:
    """How many actions the files of a checkpoint hold, and their bytes; ``None`` where one cannot be opened."""
    rows = size = 0
    try:
        for key in keys:
            with store.open_input(key) as source:
                rows += open_parquet(source).metadata.num_rows
                size += source.size()
    except (*DAMAGE, OSError, ObjectNotFoundError):
        return None
    return rows, size


# --- version 2 ---


def _is_v2(snapshot: Snapshot) -> bool:
    """Whether the table's checkpoints are of version 2."""
    policy = snapshot.properties.text("delta.checkpointPolicy") or ""
    return policy.lower() == "v2" and "v2Checkpoint" in (snapshot.protocol.writer_features or ())


def _write_v2(store: Store, snapshot: Snapshot, whole: Piece, parts: int, runtime: Runtime) -> tuple[int, int, Any]:
    """Write sidecars and top-level file; the number of actions, of bytes, and ``v2Checkpoint`` of the hint."""
    extension = (snapshot.properties.text(TOP_LEVEL_FORMAT) or "parquet").lower()
    if extension not in ("parquet", "json"):
        raise InvalidArgumentError(
            f"the table property {TOP_LEVEL_FORMAT} is {extension!r}", help="set it to parquet or json"
        )
    columns = FileColumns.of(snapshot)
    sidecars: list[dict[str, Any]] = []
    for piece in split(Piece((), whole.adds, whole.removes), parts):
        if piece.num_rows:
            name = f"{_unique(runtime)}.parquet"
            key = f"{SIDECARS}/{name}"
            schema = file_schema(columns, (), files_only=True)
            size = write_parquet(store, key, schema, slices(piece, columns, schema), piece.num_rows)
            sidecars.append({"path": name, "sizeInBytes": size, "modificationTime": store.head(key).modified_ms})
    counts = {SIDECARS_TAG: str(len(sidecars)), ADDS_TAG: str(whole.adds.num_rows)}
    actions = [
        ("checkpointMetadata", {"version": snapshot.version, "tags": counts}),
        *whole.rare,
        *(("sidecar", s) for s in sidecars),
    ]
    key = v2_checkpoint_key(snapshot.version, _unique(runtime), extension)
    if extension == "json":
        data = b"".join(orjson.dumps({name: action}) + b"\n" for name, action in actions)
        store.put(key, data)
        size = len(data)
    else:
        top = Piece(actions, whole.adds.slice(0, 0), whole.removes.slice(0, 0))
        schema = file_schema(columns, actions)
        size = write_parquet(store, key, schema, slices(top, columns, schema), top.num_rows)
    pointer = {
        "path": key.rpartition("/")[2],
        "sizeInBytes": size,
        "modificationTime": store.head(key).modified_ms,
        "sidecarFiles": sidecars,
    }
    return len(actions) + whole.num_rows - len(whole.rare), size + sum(s["sizeInBytes"] for s in sidecars), pointer


def _unique(runtime: Runtime) -> str:
    return str(UUID(runtime.new_id()))
