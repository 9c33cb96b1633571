"""A table at one version, and action reconciliation, which computes it: a pure function over columns.

Protocol: *Action Reconciliation*.  The newest action for each logical file, identified by path and deletion-vector id,
wins; so do the newest ``protocol`` and ``metaData``, the newest ``txn`` of each application, and the newest
``domainMetadata`` of each domain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.compute import pc
from trilake.delta.engine import Engine
from trilake.delta.log.segment import LogSegment
from trilake.delta.protocol.actions import (
    FILE_ACTIONS,
    ActionBatch,
    Metadata,
    Protocol,
    array_of,
    as_numpy,
    check_entry,
    int64_array,
    no_rows,
    string_scalar,
)
from trilake.delta.protocol.column_mapping import check_mode
from trilake.delta.protocol.features import check_mapping_listed, check_readable, check_writable, has_feature
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import without_keys
from trilake.delta.protocol.table_features import append_only
from trilake.delta.protocol.table_features.generated_columns import FEATURE as _GENERATED
from trilake.delta.protocol.table_features.generated_columns import KEY as GENERATION_EXPRESSION
from trilake.delta.protocol.type_widening import TYPE_CHANGES, check_type_changes
from trilake.errors import CorruptLogError, MissingMetadataError
from trilake.expr.terms.engine import Query


@dataclass(frozen=True)
class State:
    """The content of a snapshot; ``removes`` are the tombstones of the commits after the checkpoint."""

    adds: pa.Table
    removes: pa.Table
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_NOTHING, _NUL, _AT = string_scalar(""), string_scalar("\x00"), string_scalar("@")
#: Above this many keys, compare hashes, which take a tenth of the memory.
_MANY = 100_000
#: Up to this many keys, a dict of Python's takes less time than the import of ``pyarrow.compute``.
_FEW = 1000
_KEY_FIELDS = ["path", "deletionVector"]
_KEYS = pa.schema([("v", pa.int64()), ("k", pa.string())])
#: The values of hexadecimal digits; 255 for any other byte.
_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]
_ABSOLUTE = r"^(?:/|[A-Za-z][A-Za-z0-9+.\-]*:)"


_NO_ADDS, _NO_REMOVES = (no_rows(pa.schema(list(FILE_ACTIONS[kind]))) for kind in ("add", "remove"))


def empty_state() -> State:
    """The state before version 0."""
    return State(_NO_ADDS, _NO_REMOVES)


def decoded_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode ``path`` fields once; ``+`` is literal.  Raises ``CorruptLogError`` for a path that is not UTF-8."""
    if not _holds(paths, b"%"):
        return paths
    decoded = pa.chunked_array(map(_decoded, paths.chunks), pa.string())
    try:
        decoded.validate(full=True)
    except pa.ArrowInvalid as e:
        raise CorruptLogError(f"the path of a file cannot be decoded: {e}") from e
    return decoded


def _decoded(strings: pa.StringArray) -> pa.StringArray:
    """Strings with ``%XX`` decoded; other percent signs stay."""
    if not len(strings):
        return strings
    _, ends, data = strings.buffers()
    offsets = np.frombuffer(ends, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    old = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].copy()
    offsets = offsets - offsets[0]
    begins = np.zeros(len(old) + 1, bool)
    begins[offsets] = True
    escapes = np.flatnonzero(old[:-2] == ord("%"))
    high, low = _DIGITS[old[escapes + 1]], _DIGITS[old[escapes + 2]]
    whole = ((high | low) < 16) & ~(begins[escapes + 1] | begins[escapes + 2])
    if not whole.all():
        escapes, high, low = escapes[whole], high[whole], low[whole]
    old[escapes] = high << 4 | low
    keep = np.ones(len(old), bool)
    keep[escapes + 1] = keep[escapes + 2] = False
    shorter = offsets - 2 * np.searchsorted(escapes, offsets).astype(np.int32)
    decoded = pa.StringArray.from_buffers(len(strings), pa.py_buffer(shorter), pa.py_buffer(old[keep]))
    return pc.if_else(strings.is_valid(), decoded, None) if strings.null_count else decoded


def _holds(strings: pa.ChunkedArray, character: bytes) -> bool:
    """Whether a string contains an ASCII character; bytes under nulls count too."""
    return any((data[at[0] : at[-1]] == ord(character)).any() for data, at in _texts(strings))


def _texts(strings: pa.ChunkedArray) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]]:
    """The bytes of each chunk, and the positions at which its strings begin, with the end of the last one."""
    for chunk in strings.chunks:
        _, ends, data = chunk.buffers()
        if len(chunk) and data is not None:
            at = np.frombuffer(ends, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
            yield np.frombuffer(data, np.uint8), at


def any_absolute(paths: pa.ChunkedArray) -> bool:
    """Whether a decoded path is absolute."""
    if any((data[at[:-1][at[:-1] < at[1:]]] == ord("/")).any() for data, at in _texts(paths)):
        return True
    return _holds(paths, b":") and bool(pc.any(pc.match_substring_regex(paths, _ABSOLUTE)).as_py())


def file_keys(actions: pa.Table) -> pa.ChunkedArray:
    """The primary key of each file action as one string: canonical path, and the deletion vector's id if any."""
    path = decoded_paths(actions["path"])
    if _holds(path, b":") and pc.any(pc.starts_with(path, "file:")).as_py():
        # file:/x, file:///x and /x are the same file.
        path = pc.replace_substring_regex(path, r"^file:(?://)?/", "/")
    dv = actions["deletionVector"]
    if dv.null_count == len(dv):
        return path
    ids = pc.binary_join_element_wise(_NUL, vector_ids(dv), _NOTHING)
    return pc.binary_join_element_wise(path, pc.fill_null(ids, _NOTHING), _NOTHING)


def vector_ids(dv: pa.ChunkedArray) -> pa.ChunkedArray:
    """``deletionVector.uniqueId``: storage type and path, and ``@offset`` if there is one; null without a vector."""
    kind, path = pc.struct_field(dv, "storageType"), pc.struct_field(dv, "pathOrInlineDv")
    offset = pc.struct_field(dv, "offset")
    suffix = pc.fill_null(pc.binary_join_element_wise(_AT, offset.cast(pa.string()), _NOTHING), _NOTHING)
    return pc.binary_join_element_wise(kind, path, suffix, _NOTHING)


def unreconciled(batch: ActionBatch, versions: Sequence[int]) -> set[int]:
    """The versions whose actions are not reconciled: two for one file, or two of a kind that allows one."""
    if not versions:
        return set()
    out: set[int] = set()
    version_array = pa.array(sorted(versions), pa.int64())
    parts = [t.filter(pc.is_in(t["version"], version_array)) for t in (batch.add, batch.remove)]
    tables = [pa.table({"v": t["version"], "k": file_keys(t)}) for t in parts if t.num_rows]
    keys = pa.concat_tables([no_rows(_KEYS), *tables])
    counts = keys.group_by(["v", "k"]).aggregate([([], "count_all")])
    out |= set(counts.filter(pc.greater(counts["count_all"], 1))["v"].to_pylist())
    names = {"protocol": None, "metaData": None, "txn": "appId", "domainMetadata": "domain"}
    rare_keys: set[tuple[int, str, str]] = set()
    for version, name, data in batch.rare:
        if version in versions and name in names:
            field = names[name]
            key = (version, name, "" if field is None else str(data.get(field)))
            if key in rare_keys:
                out.add(version)
            rare_keys.add(key)
    return out


def reject_paths_twice(adds: pa.Table, uri: str, version: int) -> None:
    """Raise ``CorruptLogError`` if replay left a file twice: with other vectors, or another spelling of its path."""
    vectors = adds["deletionVector"]
    paths = None
    if vectors.null_count < len(vectors):
        paths = one_spelling(adds, uri)
        with_vector = paths.filter(vectors.is_valid())
        # Only files with a vector can be duplicates, and they are few.
        suspects = paths.filter(pc.is_in(paths, with_vector.unique()))
        reject_twice(suspects, uri, version)
    if any_absolute(adds["path"]):
        reject_twice(paths if paths is not None else one_spelling(adds, uri), uri, version)


def reject_keys_twice(adds: pa.Table, file: str, version: int, query: Query) -> None:
    """Raise ``CorruptLogError`` if a checkpoint has two ``add`` actions for one file."""
    keys = file_keys(adds)
    if len(keys) > _MANY and not any_twice(hashes(keys, query)):
        return
    if len(pc.unique(keys)) < len(keys):
        reject_twice(decoded_paths(adds["path"]), file, version)


def hashes(strings: pa.ChunkedArray, query: Query) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each string."""
    hashed = query("select hash(k) as h from t", t=pa.table({"k": strings}))["h"]
    return np.concatenate([np.empty(0, np.uint64), *(c.to_numpy() for c in hashed.chunks)])


def any_twice(numbers: npt.NDArray[np.uint64]) -> bool:
    """Whether a number occurs more than once; sorts them in place."""
    numbers.sort()
    return bool((numbers[1:] == numbers[:-1]).any())


def one_spelling(adds: pa.Table, uri: str) -> pa.ChunkedArray:
    """Decoded paths of files, relative to the table at ``uri`` if they lie below it."""
    paths = decoded_paths(adds["path"])
    if any_absolute(paths):
        paths = pc.replace_substring_regex(paths, r"^file:(?://)?/", "/")
        root = re.sub(r"^file:(?://)?/", "/", unquote(uri)).rstrip("/") + "/"
        inside = pc.starts_with(paths, root)
        paths = pc.if_else(inside, pc.utf8_slice_codeunits(paths, len(root)), paths)
    return paths


def reject_twice(paths: pa.ChunkedArray, uri: str, version: int) -> None:
    """Raise ``CorruptLogError`` if a path of a live file occurs twice."""
    counts = pc.value_counts(paths)
    twice = np.flatnonzero(as_numpy(counts.field("counts")) > 1)
    if twice.size:
        raise twice_error(counts.field("values")[int(twice[0])].as_py(), uri, version)


def twice_error(path: str, uri: str, version: int) -> CorruptLogError:
    """The error for a file that is live twice."""
    message = f"the version lists a file twice, so its rows would be read twice: {path!r}"
    return CorruptLogError(message, file=uri, version=version)


def apply(state: State, batch: ActionBatch) -> State:
    """The state after the actions of ``batch``, which are in log order."""
    return apply_rare(_apply_files(state, batch), batch)


def apply_rare(state: State, batch: ActionBatch) -> State:
    """The state after the actions of ``batch`` that are not file actions."""
    if not batch.rare:
        return state
    changed: dict[str, Any] = {"txns": (txns := dict(state.txns)), "domains": (domains := dict(state.domains))}
    for version, name, data in batch.rare:
        match name:
            case "protocol":
                changed["protocol"] = Protocol.from_json(data, version=version)
            case "metaData":
                changed["metadata"] = Metadata.from_json(data, version=version)
            case "txn":
                check_entry(name, data, version)
                txns[data["appId"]] = data
            case "domainMetadata":
                check_entry(name, data, version)
                domains.pop(data["domain"], None)
                if not data.get("removed"):
                    domains[data["domain"]] = data
    return replace(state, **changed)


def _apply_files(state: State, batch: ActionBatch) -> State:
    adds, removes = batch.add, batch.remove
    if not adds.num_rows and not removes.num_rows:
        return state
    keys = _joined_keys(adds, removes)
    newest_keys, winners = _newest(
        keys, pa.chunked_array([*adds["order"].chunks, *removes["order"].chunks], pa.int64())
    )
    if len(winners) < len(keys):
        adds, removes = (t.filter(pc.is_in(t["order"], winners)) for t in (adds, removes))
    new_adds, new_removes = (t.drop_columns(["version", "order"]) for t in (adds, removes))
    return replace(
        state,
        adds=pa.concat_tables([_without(state.adds, newest_keys), new_adds]),
        removes=pa.concat_tables([_without(state.removes, newest_keys), new_removes]),
    )


def _newest(keys: pa.ChunkedArray, orders: pa.ChunkedArray) -> tuple[pa.Array, pa.Int64Array]:
    if len(keys) <= _FEW:
        newest_of: dict[str, int] = {}
        for key, order in zip(keys.to_pylist(), orders.to_pylist(), strict=True):
            newest_of[key] = max(order, newest_of.get(key, -1))
        return array_of(list(newest_of), pa.string()), int64_array(np.fromiter(newest_of.values(), np.int64))
    codes = keys.dictionary_encode()
    code = np.concatenate([as_numpy(c.indices) for c in codes.chunks])
    order = np.concatenate([as_numpy(c) for c in orders.chunks])
    unique = codes.chunk(0).dictionary  # all chunks share it
    newest = np.full(len(unique), -1, np.int64)
    np.maximum.at(newest, code, order)
    return unique, int64_array(newest)


def _joined_keys(*actions: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([c for t in actions for c in file_keys(t).chunks], pa.string())


def _without(files: pa.Table, keys: pa.Array) -> pa.Table:
    if not files.num_rows or not len(keys):
        return files
    is_dropped = pc.is_in(file_keys(files), keys)
    return files.filter(pc.invert(is_dropped)) if pc.any(is_dropped).as_py() else files


class NewerFiles:
    """The files that newer actions refer to; these actions replace older ones."""

    def __init__(self, *newer: pa.Table) -> None:
        self._newer = [t.select(_KEY_FIELDS) for t in newer]  # sent to Spark tasks

    def without_newer(self, files: pa.Table) -> pa.Table:
        """``files`` without those that newer actions touch."""
        return _without(files, self._keys)

    @cached_property
    def _keys(self) -> pa.Array:
        return pc.unique(_joined_keys(*self._newer))


# --- A version: without files, with files, or with a checkpoint whose files are read lazily ---------------------------


def in_force(metadata: Metadata, protocol: Protocol) -> Metadata:
    """Metadata without the generation expressions of a table that does not support generated columns.

    Engines that copy the notes of columns to new tables leave them there.  The columns are plain, also for delta-spark,
    and the next change of the metadata drops the expressions.
    """
    if GENERATION_EXPRESSION not in metadata.schema_string or has_feature(protocol, _GENERATED.name):
        return metadata
    return replace(metadata, schema_string=without_keys(metadata.schema, (GENERATION_EXPRESSION,)).json())


@dataclass(frozen=True)
class Head:
    """A table at one version, without its files: ``state`` has no file actions, unlike that of a :class:`Snapshot`."""

    uri: str
    version: int
    state: State
    segment: LogSegment
    engine: Engine

    @property
    def protocol(self) -> Protocol:
        assert self.state.protocol is not None
        return self.state.protocol

    @cached_property
    def metadata(self) -> Metadata:
        """The table's metadata, as its protocol lets it be read: :func:`in_force`."""
        assert self.state.metadata is not None
        return in_force(self.state.metadata, self.protocol)

    @cached_property
    def schema(self) -> StructType:
        return self.metadata.schema

    @property
    def properties(self) -> TableProperties:
        return TableProperties(self.metadata.configuration)

    def check_writable(self) -> None:
        """Raise ``UnsupportedProtocolError`` if the table cannot be written."""
        check_writable(self.protocol, uri=self.uri, version=self.version)

    def check_removable(
        self, *, so: str = "rows cannot be removed", help: str = "set delta.appendOnly to false first"
    ) -> None:
        """Raise ``InvalidArgumentError`` for an append-only table; ``so`` is the consequence."""
        if self.properties.is_on(append_only.KEY):
            raise append_only.removal_rejected(self.uri, so, help)

    def has_transaction(self, app_id: str, version: int) -> bool:
        """Whether ``app_id`` has already committed transaction ``version`` or a later one."""
        txn = self.state.txns.get(app_id)
        return txn is not None and int(txn.get("version") or 0) >= version


_H = TypeVar("_H", bound=Head)


@dataclass(frozen=True)
class Snapshot(Head):
    """A table at one version, with its files."""

    @property
    def adds(self) -> pa.Table:
        """One row per logical file, with the fields of the ``add`` action."""
        return self.state.adds


@dataclass(frozen=True)
class PendingSnapshot(Head):
    """A version with a large checkpoint whose files are not read yet.

    ``actions`` belong to the commits after it.  :meth:`~trilake.delta.log.log.DeltaLog.load` reads the files.
    """

    actions: ActionBatch

    @cached_property
    def newer(self) -> State:
        """The files of the commits after the checkpoint."""
        return apply(empty_state(), self.actions)

    @cached_property
    def newer_files(self) -> NewerFiles:
        """The files that these commits touch."""
        return NewerFiles(self.actions.add, self.actions.remove)


def check_complete(head: Head) -> None:
    """Raise ``MissingMetadataError`` unless a version has metadata and a protocol."""
    state = head.state
    lacking = [n for n, a in (("metaData", state.metadata), ("protocol", state.protocol)) if a is None]
    if lacking:
        message = f"the log has no {' and no '.join(lacking)} action"
        help = "the first commit or the checkpoint is damaged: restore it from a backup"
        raise MissingMetadataError(message, help=help, file=head.uri, version=head.version)


def readable(head: _H) -> _H:
    """Reject an incomplete table (``MissingMetadataError``), or an unsupported one (``UnsupportedProtocolError``)."""
    check_complete(head)
    check_readable(head.protocol, uri=head.uri, version=head.version)
    check_mode(head.metadata, uri=head.uri, version=head.version)
    check_mapping_listed(head.protocol, head.metadata, uri=head.uri, version=head.version)
    if TYPE_CHANGES in head.metadata.schema_string:
        check_type_changes(head.metadata, uri=head.uri, version=head.version)
    return head
