"""Writing checkpoints: the state of a snapshot in Parquet, and the hint that points at it.

Protocol: *Checkpoints*, *Requirements for Writers*.  One file by default; several, by a hash of the path, above
``part_size`` actions; of version 2 with sidecars where the table asks for it.  Files become visible as a whole and the
hint is written last, so a writer may die anywhere.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.checkpoint_parts import (
    FileColumns,
    Piece,
    file_schema,
    rare_actions,
    slices,
    split,
    write_parquet,
)
from trilake.delta.log.checkpoint_v2 import wanted, write_v2
from trilake.delta.log.last_checkpoint import make_hint
from trilake.delta.log.log import DeltaLog, Snapshot
from trilake.delta.log.segment import LAST_CHECKPOINT, checkpoint_key, checkpoint_part_key
from trilake.delta.protocol.schema import from_arrow
from trilake.errors import InvalidArgumentError
from trilake.runtime import Runtime

#: Table property: actions of one file of a checkpoint, above which there are several.
PART_SIZE = "trilake.checkpoint.partSize"
DEFAULT_PART_SIZE = 5_000_000
#: A longer description of the checkpoint's columns is left out of the hint, which every reader fetches.
_MAX_SCHEMA_BYTES = 16 * 1024


def write_checkpoint(log: DeltaLog, snapshot: Snapshot, runtime: Runtime, *, part_size: int | None = None) -> None:
    """Write the checkpoint of ``snapshot`` and point ``_last_checkpoint`` at it, unless it points at a newer one.

    Parameters
    ----------
    log: the table's log.
    snapshot: the state to write; its version must be committed.
    runtime: clock and ids.
    part_size: most actions of one file; by default the table's property ``trilake.checkpoint.partSize``.

    Tombstones older than ``delta.deletedFileRetentionDuration`` are left out, as the protocol allows.  Raises
    ``InvalidArgumentError`` for a size that is no positive number.
    """
    removes = _without_expired(log.tombstones(snapshot), snapshot, runtime.clock_ms())
    whole = Piece(rare_actions(snapshot), snapshot.adds, removes)
    parts = max(1, -(-(whole.adds.num_rows + removes.num_rows) // _part_size(snapshot, part_size)))
    if wanted(snapshot):
        size, size_in_bytes, pointer = write_v2(log.store, snapshot, whole, parts, runtime)
        hint = make_hint(
            snapshot.version,
            size=size,
            size_in_bytes=size_in_bytes,
            num_add_files=whole.adds.num_rows,
            v2_checkpoint=pointer,
        )
    else:
        hint = _write_classic(log, snapshot, whole, parts)
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


def _part_size(snapshot: Snapshot, given: int | None) -> int:
    text = snapshot.properties.text(PART_SIZE) if given is None else str(given)
    if text is None:
        return DEFAULT_PART_SIZE
    if not re.fullmatch(r"[1-9]\d{0,17}", text):
        raise InvalidArgumentError(f"{text!r} is no number of actions for a part of a checkpoint", help="1 or more")
    return int(text)


def _write_classic(log: DeltaLog, snapshot: Snapshot, whole: Piece, parts: int) -> bytes:
    columns = FileColumns.of(snapshot)
    schema = file_schema(columns, whole.rare)
    size_in_bytes = 0
    for number, piece in enumerate(split(whole, parts), 1):
        key = checkpoint_key(snapshot.version) if parts == 1 else checkpoint_part_key(snapshot.version, number, parts)
        size_in_bytes += write_parquet(log.store, key, schema, slices(piece, columns, schema), piece.num_rows)
    described = from_arrow(schema)
    return make_hint(
        snapshot.version,
        size=whole.num_rows,
        size_in_bytes=size_in_bytes,
        num_add_files=whole.adds.num_rows,
        parts=parts if parts > 1 else None,
        checkpoint_schema=described.to_json() if len(described.json()) <= _MAX_SCHEMA_BYTES else None,
    )
