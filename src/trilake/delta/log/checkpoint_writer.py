"""Write checkpoints, and the ``_last_checkpoint`` hint that points at them.

Protocol: *Checkpoints*, *V2 Spec*, *Sidecar Files*, *Requirements for Writers*.  A checkpoint is one file; with more
than ``part_size`` actions, it is split into several by a hash of the path.  A file becomes visible as a whole and the
hint is written last, so a writer may die at any point.

With ``v2Checkpoint`` and ``delta.checkpointPolicy = v2`` the file actions go into sidecars, written before the
top-level file that names them; if the writer dies, log cleanup deletes them.  The checkpoint of a large table reuses
unchanged sidecars, and Spark tasks can write the others (:mod:`trilake.delta.log.sidecars`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.common.runtime import Runtime
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import ADDS_TAG, SIDECARS_TAG, checkpoint_pieces, counted
from trilake.delta.log.checkpoint_parts import CheckpointFile, FileColumns, expiry_ms, file_schema, unexpired
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.last_checkpoint import make_hint
from trilake.delta.log.log import DeltaLog, MaybeTwiceError, check_same_table, live_files
from trilake.delta.log.segment import LAST_CHECKPOINT, checkpoint_key, checkpoint_part_key, is_large, v2_checkpoint_key
from trilake.delta.log.sidecars import (
    Sidecar,
    SidecarWriter,
    Written,
    base_outlasts,
    is_there,
    layout_of,
    reusable,
    unique,
    write_sidecars,
)
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot, decoded_paths
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import from_arrow
from trilake.errors import (
    CorruptLogError,
    InvalidArgumentError,
    MetadataChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from trilake.expr.terms.engine import Query
from trilake.parquet.files import DAMAGE, checked_footer, open_parquet
from trilake.storage.base import Store

#: Table property: the most actions in one checkpoint file; a checkpoint with more has several files.
PART_SIZE = "trilake.checkpoint.partSize"
DEFAULT_PART_SIZE = 5_000_000
#: The most actions in one sidecar, which is rewritten whole when one of its files is removed.
DEFAULT_SIDECAR_SIZE = 1_000_000
#: A table smaller than this share of a full sidecar gets a single file of each kind.
_SMALL = 16
#: Most sidecars that the hint names; every reader fetches the hint.
_MAX_SIDECARS_IN_HINT = 30
#: Table property: format of the top-level v2 file, ``parquet`` or ``json``.
TOP_LEVEL_FORMAT = "trilake.checkpoint.topLevelFormat"
#: The hint omits a longer description of the checkpoint's columns, since every reader fetches the hint.
_MAX_SCHEMA_BYTES = 16 * 1024


def write_checkpoint(
    log: DeltaLog,
    version: Snapshot | PendingSnapshot,
    runtime: Runtime,
    *,
    part_size: int | None = None,
    replace: bool = False,
) -> FileTotals | None:
    """Write the checkpoint of a committed version, and point ``_last_checkpoint`` at it unless that names a newer one.

    The files of a :class:`~trilake.delta.log.snapshot.PendingSnapshot` pass through memory piece by piece.  A readable
    checkpoint of this version stays as it is, since readers that listed the log expect its size, unless it is wrong
    (``replace``).  ``part_size`` is the most actions of one file, by default the table property
    ``trilake.checkpoint.partSize``; approximate for a large table.

    Returns the totals of the version's files; ``None`` if the checkpoint existed.  Raises ``InvalidArgumentError`` for
    a ``part_size`` below 1, and ``MetadataChangedError`` if the table was dropped or replaced.
    """
    jobs = None
    if _is_v2(version) and is_large(version.segment) and not replace:
        jobs = log.engine.jobs_for(log.store, counted(version.segment))
    if jobs is not None and isinstance(version, Snapshot):
        return write_checkpoint(log, log.opened(version.version), runtime, part_size=part_size)
    content = _content_of(log, version, runtime.clock_ms())
    try:
        if _is_v2(version):
            most = _part_size(version, part_size, DEFAULT_SIDECAR_SIZE)
            hint, totals = _write_v2(log, version, content, most, runtime, jobs, replace=replace)
        else:
            parts = max(1, -(-content.expected // _part_size(version, part_size, DEFAULT_PART_SIZE)))
            hint, totals = _write_classic(log, content, parts, replace=replace)
    except (MaybeTwiceError, CorruptLogError):
        if not isinstance(version, PendingSnapshot):
            raise
        # Only a read of all files at once detects a duplicate.  If the checkpoint was damaged since it was opened, this
        # reads the commits instead.
        return write_checkpoint(log, log.load(version), runtime, part_size=part_size, replace=replace)
    except _BaseGoneError:
        return write_checkpoint(log, log.opened(version.version), runtime, part_size=part_size)
    if hint is not None and not _points_further(log, version.version):
        log.store.put(LAST_CHECKPOINT, hint)
    return totals


def _points_further(log: DeltaLog, version: int) -> bool:
    newest = log.hint()
    if newest is None or newest.version <= version:
        return False
    return any(v == newest.version for v, _ in log.listing(start=newest.version).checkpoints)


def _part_size(head: Head, part_size: int | None, default: int) -> int:
    value = head.properties.text(PART_SIZE) if part_size is None else str(part_size)
    if value is None:
        return default
    if not re.fullmatch(r"[1-9]\d{0,17}", value):
        raise InvalidArgumentError(
            f"{PART_SIZE} must be a number of actions above 0, got {value!r}",
            help="set the property to a number such as 1000000",
        )
    return int(value)


def owners(files: pa.Table, parts: int, query: Query) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which of ``parts`` checkpoint files each file goes into: by the MD5 of its decoded path, so always the same."""
    sql = f"select (md5_number_lower(p) % {parts})::bigint as part from t"
    numbers: np.ndarray[Any, np.dtype[np.int64]] = query(sql, t=pa.table({"p": decoded_paths(files["path"])}))[
        "part"
    ].to_numpy()
    return numbers


def _spread(files: Sequence[CheckpointFile], pieces: _FilePieces, query: Query) -> FileTotals:
    """Write file actions, to several files by a hash of their path; return the totals of the ``add`` actions."""
    totals = FileTotals()
    for kind, piece in pieces:
        if kind == "add":
            totals += FileTotals.of(piece)
        if len(files) == 1:
            files[0].take(kind, piece)
        elif piece.num_rows:
            owner = owners(piece, len(files), query)
            for number, file in enumerate(files):
                file.take(kind, piece.take(pa.array(np.flatnonzero(owner == number))))
    return totals


def _write_classic(
    log: DeltaLog, content: _Content, parts: int, *, replace: bool
) -> tuple[bytes | None, FileTotals | None]:
    store, version, rare = log.store, content.head.version, _rare_actions(content.head)
    columns = FileColumns.of(content.head)
    schema = file_schema(columns, rare)
    numbers = range(1, parts + 1)
    keys = [checkpoint_key(version)] if parts == 1 else [checkpoint_part_key(version, n, parts) for n in numbers]

    def write(*, absent: bool = False) -> tuple[bytes, FileTotals]:
        with ExitStack() as stack:
            each = -(-content.expected // parts)
            files = [
                stack.enter_context(CheckpointFile(store, key, columns, schema, each, absent=absent)) for key in keys
            ]
            files[0].take_rare(rare)
            totals = _spread(files, content.pieces(), log.engine.query)
            check_same_table(log, content.head)
        rows, size = sum(f.rows for f in files), sum(f.size for f in files)
        return _hint(version, rows, totals.num_files, size, parts, schema if parts == 1 else None), totals

    def hint_at(rows: int, size: int, adds: int | None) -> bytes | None:
        """The hint at existing files, if their content is known."""
        count = adds if content.num_adds is None else content.num_adds
        return None if count is None else _hint(version, rows, count, size, parts, None)

    if parts > 1 and not replace and (there := _rows_and_size(store, keys)) is not None:
        return hint_at(*there), None
    try:
        return write(absent=parts == 1 and not replace)
    except ObjectExistsError:
        there = _rows_and_size(store, keys)
        return (hint_at(*there), None) if there is not None else write()


def _hint(version: int, rows: int, adds: int, size: int, parts: int, schema: pa.Schema | None) -> bytes:
    return make_hint(
        version,
        size=rows,
        size_in_bytes=size,
        num_add_files=adds,
        parts=parts if parts > 1 else None,
        checkpoint_schema=None if schema is None else _description(schema),
    )


def _description(schema: pa.Schema) -> Mapping[str, Any] | None:
    """The checkpoint's columns for the hint, or ``None`` if they are too many."""
    described = from_arrow(schema)
    return described.to_json() if len(described.json()) <= _MAX_SCHEMA_BYTES else None


def _rows_and_size(store: Store, keys: Sequence[str]) -> tuple[int, int, int | None] | None:
    """The number of actions, of bytes and, from the footers, of ``add`` actions in the files of a checkpoint.

    The last is ``None`` if a footer does not state it; the whole result is ``None`` if a file cannot be opened.
    """
    rows = size = 0
    adds: int | None = 0
    try:
        for key in keys:
            with store.open_input(key) as source:
                file = open_parquet(source)
                rows += file.metadata.num_rows
                size += source.size()
                count = _adds_in(source, file)
                adds = None if count is None or adds is None else adds + count
    except (*DAMAGE, OSError, ObjectNotFoundError):
        return None
    return rows, size, adds


def _adds_in(source: pa.NativeFile, file: pq.ParquetFile) -> int | None:
    """The number of ``add`` actions in a checkpoint file; ``None`` if its footer does not state it."""
    paths = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
    if "add.path" not in paths:
        return None
    chunks = [group[paths.index("add.path")] for group in checked_footer(source, file)]
    if any(c.null_count is None for c in chunks):
        return None
    return sum(c.num_values - (c.null_count or 0) for c in chunks)


# --- the content of a checkpoint ---

#: File actions of one kind (``add`` or ``remove``).
_FilePieces = Iterator[tuple[str, pa.Table]]
#: Files of a piece of an in-memory list.
_PIECE_ROWS = 256 * 1024


@dataclass(frozen=True)
class _Content:
    """The file actions of a version, about ``expected`` of them; ``num_adds`` is the number of files, if known."""

    head: Head
    pieces: Callable[[], _FilePieces]
    expected: int
    num_adds: int | None


def _content_of(log: DeltaLog, version: Snapshot | PendingSnapshot, now_ms: int) -> _Content:
    """The content of a version's checkpoint, without expired tombstones; may end with ``MaybeTwiceError``."""
    expiry = expiry_ms(version, now_ms)
    if isinstance(version, PendingSnapshot):
        expected = counted(version.segment) + version.actions.add.num_rows + version.actions.remove.num_rows
        return _Content(version, lambda: _streamed(log, version, expiry), expected, None)
    removes = unexpired(log.tombstones(version), expiry)
    adds = version.adds

    def whole() -> _FilePieces:
        for kind, files in (("add", adds), ("remove", removes)):
            for start in range(0, files.num_rows, _PIECE_ROWS):
                yield kind, files.slice(start, _PIECE_ROWS)

    return _Content(version, whole, adds.num_rows + removes.num_rows, adds.num_rows)


def _streamed(log: DeltaLog, pending: PendingSnapshot, expiry: int) -> _FilePieces:
    yield from (("add", files) for files in live_files(log, pending))
    older = checkpoint_pieces(log.store, pending.segment, log.engine.query, "remove")
    for removes in chain(map(pending.newer_files.without_newer, older), [pending.newer.removes]):
        yield "remove", unexpired(removes, expiry)


def _rare_actions(snapshot: Head) -> list[tuple[str, Mapping[str, Any]]]:
    """The actions of a version that are not files, as ``(name, JSON object)``."""
    state = snapshot.state
    return [
        ("protocol", snapshot.protocol.to_json()),
        ("metaData", cast(Metadata, state.metadata).to_json()),
        *(("txn", t) for t in state.txns.values()),
        *(("domainMetadata", d) for d in state.domains.values()),
    ]


# --- version 2 ---


def _is_v2(head: Head) -> bool:
    policy = head.properties.text("delta.checkpointPolicy") or ""
    return policy.lower() == "v2" and "v2Checkpoint" in (head.protocol.writer_features or ())


class _BaseGoneError(Exception):
    """The older checkpoint, whose sidecars the new one reuses, was deleted; so the new one is deleted, too."""


def _write_v2(
    log: DeltaLog,
    version: Snapshot | PendingSnapshot,
    content: _Content,
    most: int,
    runtime: Runtime,
    jobs: Jobs | None,
    *,
    replace: bool,
) -> tuple[bytes | None, FileTotals | None]:
    """Write sidecars of at most ``most`` actions and the top-level file; return the hint and the file totals."""
    extension = (version.properties.text(TOP_LEVEL_FORMAT) or "parquet").lower()
    if extension not in ("parquet", "json"):
        raise InvalidArgumentError(f"the table property {TOP_LEVEL_FORMAT} must be parquet or json, got {extension!r}")
    columns, store = FileColumns.of(version), log.store
    top_level = _TopLevelFile(log, version, columns, extension, runtime)
    if isinstance(version, PendingSnapshot) and not replace:
        if jobs is not None and not version.segment.commits:
            return None, None
        reuse = reusable(log, version, layout_of(columns.type), most, runtime.clock_ms(), jobs)
        if reuse is not None:
            sidecar_files = write_sidecars(log, version, columns, jobs, runtime, most=most, reuse=reuse)
            # Writing took time, and the store's clock may be ahead of this machine's.
            if base_outlasts(log, version, max(runtime.clock_ms(), sidecar_files.newest_ms)):
                if jobs is not None and _written_concurrently(log, version, sidecar_files):
                    return None, None
                key, hint, totals = top_level.write(sidecar_files, reuse.kept)
                if is_there(log, version):
                    return hint, totals
                # A cleanup that ignores the retention may delete the reused sidecars next.
                store.delete([key])
                raise _BaseGoneError
            sidecar_files.discard(store)
        if jobs is not None:
            sidecar_files = write_sidecars(log, version, columns, jobs, runtime, most=most, reuse=None)
            if _written_concurrently(log, version, sidecar_files):
                return None, None
            return top_level.write(sidecar_files)[1:]
    small = content.expected * _SMALL < most
    writer = SidecarWriter(store, runtime, columns, most=most, expected=content.expected, mixed=small)
    return top_level.write(writer.write(content.pieces()))[1:]


def _written_concurrently(log: DeltaLog, version: Head, written: Written) -> bool:
    there = any(v == version.version for v, _ in log.listing(start=version.version).checkpoints)
    if there:
        written.discard(log.store)
    return there


@dataclass(frozen=True)
class _TopLevelFile:
    """The file of a v2 checkpoint that names its sidecars, in Parquet or JSON (``extension``)."""

    log: DeltaLog
    head: Head
    columns: FileColumns
    extension: str
    runtime: Runtime

    def write(self, written: Written, kept: Sequence[Sidecar] = ()) -> tuple[str, bytes, FileTotals]:
        """Write the file, with new sidecars and ``kept`` ones; return its key, the hint and the totals of the files."""
        sidecars = [*(s.action for s in kept), *written.actions]
        totals = sum((s.files for s in kept), written.totals)
        counts = {SIDECARS_TAG: str(len(sidecars)), ADDS_TAG: str(totals.num_files)}
        actions = [
            ("checkpointMetadata", {"version": self.head.version, "tags": counts}),
            *_rare_actions(self.head),
            *(("sidecar", s) for s in sidecars),
        ]
        store, key = self.log.store, v2_checkpoint_key(self.head.version, unique(self.runtime), self.extension)
        try:
            check_same_table(self.log, self.head)
        except MetadataChangedError:
            written.discard(store)
            raise
        if self.extension == "json":
            data = b"".join(orjson.dumps({name: action}) + b"\n" for name, action in actions)
            store.put(key, data)
            size = len(data)
        else:
            with CheckpointFile(store, key, self.columns, file_schema(self.columns, actions), len(actions)) as top:
                top.take_rare(actions)
            size = top.size
        pointer: dict[str, Any] = {
            "path": key.rpartition("/")[2],
            "sizeInBytes": size,
            "modificationTime": store.head(key).modified_ms,
        }
        if len(sidecars) <= _MAX_SIDECARS_IN_HINT:
            pointer["sidecarFiles"] = [{k: v for k, v in s.items() if k != "tags"} for s in sidecars]
        hint = make_hint(
            self.head.version,
            size=len(actions) + written.rows + sum(s.files.num_files for s in kept),
            size_in_bytes=size + written.size + sum(s.size for s in kept),
            num_add_files=totals.num_files,
            v2_checkpoint=pointer,
        )
        return key, hint, totals
