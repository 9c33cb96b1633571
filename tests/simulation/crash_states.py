"""Disk states after a power failure: for every prefix of the recorded writes, syncs and renames of an operation.

The content of a file is on disk after its sync, and may be missing or torn before.  A name (a link, rename, unlink,
new folder) is on disk after a sync of its folder; of the others, any may be there.  This is what POSIX
promises, and less than most file systems do.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from trilake.storage import durable, local, local_writer
from trilake.storage.memory import MemoryStore


@dataclass(frozen=True)
class Event:
    """One step: ``create``, ``sync``, ``name`` (a path becomes a file), ``unlink``, ``folder`` or ``acknowledged``."""

    kind: str
    path: str
    file: int = -1
    content: bytes = b""
    version: int = -1


@dataclass
class Recorder:
    """Record the steps of the local store below ``root`` in order."""

    root: str
    events: list[Event] = field(default_factory=list)
    _files: dict[str, int] = field(default_factory=dict)
    _next: int = 0

    def acknowledged(self, version: int) -> None:
        """Record that an operation returned: its version must survive from here on."""
        self.events.append(Event("acknowledged", "", version=version))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the local store does in the block."""
        system, files = _Os(self), _Io(self)
        with (
            mock.patch.object(durable, "os", system),
            mock.patch.object(local, "os", system),
            mock.patch.object(local_writer, "os", system),
            mock.patch.object(local_writer, "io", files),
            # Pretend that the disk supports syncing the whole file system.
            mock.patch.object(durable, "_syncs_file_systems", return_value=True),
            mock.patch.object(durable, "_kind", return_value=0xEF53),
            mock.patch.object(durable, "_unwritten", return_value=0),
            mock.patch.object(durable, "sync_file_system", self.all_synced),
        ):
            yield

    def _key(self, path: str) -> str | None:
        return path[len(self.root) + 1 :] if path.startswith(self.root + "/") else None

    def created(self, path: str) -> None:
        key = self._key(path)
        if key is not None:
            self._next += 1
            self._files[key] = self._next
            self.events.append(Event("create", key, self._next))

    def synced(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path == self.root:
            self.events.append(Event("folder", ""))
        key = self._key(path)
        if key is None:
            return
        if os.path.isdir(path):
            self.events.append(Event("folder", key))
        else:
            self.events.append(Event("sync", key, self._files[key], _content(path)))

    def all_synced(self, fd: int) -> None:
        """Record a sync of the whole file system: content of files and names in folders."""
        there = [(key, file) for key, file in self._files.items() if os.path.exists(f"{self.root}/{key}")]
        self.events += [Event("sync", key, file, _content(f"{self.root}/{key}")) for key, file in there]
        self.events += [Event("folder", folder) for folder in {"", *(key.rpartition("/")[0] for key, _ in there)}]

    def named(self, source: str, target: str, *, keeps: bool) -> None:
        key, to = self._key(source), self._key(target)
        if key is not None and to is not None:
            file = self._files[key]
            self.events.append(Event("name", to, file, _content(target)))
            self._files[to] = file
            if not keeps:
                self.events.append(Event("unlink", key))

    def unlinked(self, path: str) -> None:
        key = self._key(path)
        if key is not None:
            self.events.append(Event("unlink", key))


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class _Os:
    """``os``, which reports steps that change the disk to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        self._recorder.synced(fd)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)
        self._recorder.named(source, target, keeps=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)
        self._recorder.named(source, target, keeps=False)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)
        folder = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}").rstrip("/") + "/"
        self._recorder.unlinked(folder + path)


class _Io:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        import io

        return getattr(io, name)

    def FileIO(self, path: str, mode: str) -> Any:
        import io

        file = io.FileIO(path, mode)
        self._recorder.created(path)
        return file


# --- states ----------------------------------------------------------------------------------------------------------


@dataclass
class Disk:
    """State after some step: names, names certain to be on disk, and content by file."""

    names: dict[str, int] = field(default_factory=dict)
    certain: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, int | None]] = field(default_factory=list)  # path, file; None: unlinked
    synced: dict[int, bytes] = field(default_factory=dict)
    written: dict[int, bytes] = field(default_factory=dict)
    acknowledged: int = -1

    def step(self, event: Event) -> None:
        """Apply one step."""
        match event.kind:
            case "create":
                self.written[event.file] = b""
                self._change(event.path, event.file)
            case "sync":
                self.synced[event.file] = self.written[event.file] = event.content
            case "name":
                self.written[event.file] = event.content
                self._change(event.path, event.file)
            case "unlink":
                self._change(event.path, None)
            case "folder":
                kept = []
                for path, file in self.pending:
                    if path.rpartition("/")[0] == event.path:
                        _put(self.certain, path, file)
                    else:
                        kept.append((path, file))
                self.pending = kept
            case "acknowledged":
                self.acknowledged = event.version

    def _change(self, path: str, file: int | None) -> None:
        _put(self.names, path, file)
        self.pending.append((path, file))

    def after_failure(self, kept: Callable[[int], bool], torn: Callable[[int], float]) -> dict[str, bytes]:
        """Objects after a power failure, with ``kept`` pending names and ``torn`` shares of unsynced files."""
        names = dict(self.certain)
        for i, (path, file) in enumerate(self.pending):
            if kept(i):
                _put(names, path, file)
        found = {}
        for path, file in names.items():
            content = self.synced.get(file)
            if content is None:
                whole = self.written.get(file, b"")
                content = whole[: int(len(whole) * torn(file))]
            found[path] = content
        return {k: v for k, v in found.items() if ".trilake-" not in k}


def _put(names: dict[str, int], path: str, file: int | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file


def states(events: list[Event], rng: random.Random, variants: int) -> Iterator[tuple[int, int, dict[str, bytes]]]:
    """Yield disks after a failure at each step, as step, newest acknowledged version, and objects by key.

    All pending names kept, none, all but one, and ``variants`` random choices with torn files.
    """
    disk = Disk()
    for number, event in enumerate(events):
        disk.step(event)
        many = len(disk.pending)
        choices: list[tuple[Callable[[int], bool], Callable[[int], float]]] = [
            (lambda _: True, lambda _: 1.0),
            (lambda _: True, lambda _: 0.0),
            (lambda _: False, lambda _: 0.0),
        ]
        choices += [(lambda i, n=n: i != n, lambda _: 0.5) for n in range(max(0, many - 6), many)]  # type: ignore[misc]
        for _ in range(variants):
            mask, torn = rng.getrandbits(max(many, 1)), rng.random()
            choices.append((lambda i, mask=mask: bool(mask >> i & 1), lambda _, torn=torn: torn))  # type: ignore[misc]
        for kept, torn_share in choices:
            yield number, disk.acknowledged, disk.after_failure(kept, torn_share)


def store_of(objects: dict[str, bytes]) -> MemoryStore:
    """Return a store with these objects."""
    store = MemoryStore()
    for key, content in objects.items():
        store.put(key, content)
    return store
