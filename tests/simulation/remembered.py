"""Cache of parsed logs and manifests: actors of a run parse the same bytes once.

Every actor and the final checks open the table again, and mostly read the same files.  Parsing
depends on its arguments only; the store calls happen as without the cache, in the same order, and the bytes
that they return are the key.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from trilake.delta.log import checkpoint, log, snapshot
from trilake.delta.protocol import actions
from trilake.delta.protocol.actions import ActionBatch
from trilake.lance.versions import manifest
from trilake.lance.versions.manifest import Manifest

#: Results by function and arguments, with the objects that must stay alive to keep the key unique.
_known: dict[Hashable, Any] = {}


def forget() -> None:
    """Clear the cache for another run."""
    _known.clear()


@contextmanager
def remembered() -> Iterator[None]:
    """Cache parsing and replay of logs and manifests in the block."""
    patches: list[Any] = [
        mock.patch.object(checkpoint.Share, "selected_pieces", _pieces_once(checkpoint.Share.selected_pieces)),
        mock.patch.object(log, "parse_commits", _parsed_once("commits", actions.parse_commits)),
        mock.patch.object(log, "parse_rare", _parsed_once("rare", actions.parse_rare)),
        mock.patch.object(snapshot, "_apply_files", _applied_once(snapshot._apply_files)),
        mock.patch.object(manifest, "parse_manifest", _manifest_once(manifest.parse_manifest)),
    ]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.callback(forget)
        yield


class _StoredObject:
    """An object that is read once, with the call that the caller would make."""

    def __init__(self, store: Any, key: str) -> None:
        self.uri: str = store.uri
        self.data: bytes | None = None
        self._error: Exception | None = None
        try:
            if key.endswith(".json"):
                self.data = bytes(store.read(key))
            else:
                with store.open_input(key) as source:
                    self.data = source.read()
        except Exception as e:  # noqa: BLE001 - raised to the caller by the read
            self._error = e

    def read(self, key: str) -> pa.Buffer:
        if self._error is not None:
            raise self._error
        return pa.py_buffer(self.data)

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(key))


Pieces = Iterator[tuple[pa.Table, int]]


def _pieces_once(pieces: Callable[..., Pieces]) -> Callable[..., Pieces]:
    def of(
        share: Any,
        store: Any,
        query: Any,
        kind: str = "add",
        only: Any = None,
        selection: Any = None,
        rare: list[Any] | None = None,
    ) -> Pieces:
        stored = _StoredObject(store, share.key)
        if stored.data is None or selection is not None:
            yield from pieces(share, stored, query, kind, only, selection, rare)
            return
        known = ("pieces", stored.data, query is None, kind, only, share)
        if known not in _known:
            own_actions: list[Any] = []
            tables = list(pieces(share, stored, query, kind, only, selection, own_actions))
            _known[known] = pickle.dumps(own_actions), tables
        text, tables = _known[known]
        if rare is not None:
            rare += pickle.loads(text)
        yield from tables

    return of


def _parsed_once(name: str, parse: Callable[..., ActionBatch]) -> Callable[..., ActionBatch]:
    def of(files: Sequence[tuple[int, str, pa.Buffer]], *args: Any) -> ActionBatch:
        known = (name, *((v, n, bytes(data)) for v, n, data in files))
        if known not in _known:
            made = parse(files, *args)
            _known[known] = pickle.dumps(made.rare), made
        text, made = _known[known]
        return ActionBatch(made.add, made.remove, made.cdc, pickle.loads(text))

    return of


def _applied_once(applied: Callable[..., snapshot.State]) -> Callable[..., snapshot.State]:
    def of(state: snapshot.State, batch: ActionBatch) -> snapshot.State:
        tables = (state.adds, state.removes, batch.add, batch.remove)
        known = ("applied", *map(id, tables))
        if known not in _known:
            made = applied(state, batch)
            _known[known] = tables, (made.adds, made.removes)
        adds, removes = _known[known][1]
        return snapshot.State(adds, removes, state.protocol, state.metadata, state.txns, state.domains)

    return of


def _manifest_once(parse: Callable[..., Manifest]) -> Callable[..., Manifest]:
    def of(data: pa.Buffer, *, file: str, version: int | None = None, parsed: object = None) -> Manifest:
        del parsed
        known = ("manifest", bytes(data), file, version)
        if known not in _known:
            _known[known] = parse(data, file=file, version=version)
        made: Manifest = _known[known]
        return made

    return of
