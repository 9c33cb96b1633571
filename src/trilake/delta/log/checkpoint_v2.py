"""Checkpoints of version 2: a top-level file of a unique name, and sidecars that hold the file actions.

Protocol: *V2 Spec*, *Sidecar Files*.  Written where the table supports ``v2Checkpoint`` and its property
``delta.checkpointPolicy`` says ``v2``.  Sidecars come first: the top-level file makes them visible all together, and a
writer that dies before it leaves files that nobody reads and log cleanup removes.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson

from trilake.delta.log.checkpoint import ADDS_TAG, SIDECARS_TAG
from trilake.delta.log.checkpoint_parts import FileColumns, Piece, file_schema, slices, split, write_parquet
from trilake.delta.log.log import Snapshot
from trilake.delta.log.segment import SIDECARS, v2_checkpoint_key
from trilake.errors import InvalidArgumentError
from trilake.runtime import Runtime
from trilake.storage.base import Store

#: Table property: ``parquet`` or ``json``, the format of the top-level file.
TOP_LEVEL_FORMAT = "trilake.checkpoint.topLevelFormat"


def wanted(snapshot: Snapshot) -> bool:
    """Whether the table's checkpoints are of version 2."""
    policy = snapshot.properties.text("delta.checkpointPolicy") or ""
    return policy.lower() == "v2" and "v2Checkpoint" in (snapshot.protocol.writer_features or ())


def write_v2(store: Store, snapshot: Snapshot, whole: Piece, parts: int, runtime: Runtime) -> tuple[int, int, Any]:
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
