"""What the actors of a run parse from the same bytes is parsed once, and handed to each as it would have made it.

Every actor opens the table again, and so do the checks at the end, and what they open is mostly the same.  Parsing
looks at nothing but its arguments; the calls to the store are made as without this, at the same places, and the bytes
that they give decide what is handed out.
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
from trilake.lance.versions import manifest, transaction
from trilake.lance.versions.manifest import Manifest

#: By function and arguments, what came out of it, and what must stay alive so that the key stays its own.
_known: dict[Hashable, Any] = {}


def forget() -> None:
    """Begin another run."""
    _known.clear()


@contextmanager
def remembered() -> Iterator[None]:
    """Parsing and replaying of logs and manifests that remembers what it made of the same bytes in the same run."""
    patches: list[Any] = [
        mock.patch.object(checkpoint, "_file_pieces", _pieces_once(checkpoint._file_pieces)),
        mock.patch.object(log, "parse_commits", _parsed_once("commits", actions.parse_commits)),
        mock.patch.object(log, "parse_rare", _parsed_once("rare", actions.parse_rare)),
        mock.patch.object(snapshot, "_apply_files", _applied_once(snapshot._apply_files)),
        mock.patch.object(transaction, "parse_manifest", _manifest_once(manifest.parse_manifest)),
    ]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.callback(forget)
        yield


class _Held:
    """One object of a store, which was asked for once, in the way in which the caller asks for it."""

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
        except Exception as e:  # noqa: BLE001 - the caller gets it where the store would have raised it
            self._error = e

    def read(self, key: str) -> pa.Buffer:
        if self._error is not None:
            raise self._error
        return pa.py_buffer(self.data)

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(key))


def _pieces_once(pieces: Callable[..., Iterator[pa.Table]]) -> Callable[..., Iterator[pa.Table]]:
    def of(
        store: Any,
        key: str,
        query: Any,
        kind: str | None,
        version: int,
        rare: list[Any],
        size: Any = None,
        choice: Any = None,
        only: Any = None,
        share: Any = None,
    ) -> Iterator[pa.Table]:
        held = _Held(store, key)
        if held.data is None or choice is not None:
            yield from pieces(held, key, query, kind, version, rare, size, choice, only, share)
            return
        known = ("pieces", key, held.data, kind, version, size, only, share)
        if known not in _known:
            own: list[Any] = []
            tables = list(pieces(held, key, query, kind, version, own, size, choice, only, share))
            _known[known] = pickle.dumps(own), tables
        text, tables = _known[known]
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
    def of(data: pa.Buffer, *, file: str, version: int | None = None) -> Manifest:
        known = ("manifest", bytes(data), file, version)
        if known not in _known:
            _known[known] = parse(data, file=file, version=version)
        made: Manifest = _known[known]
        return made

    return of
