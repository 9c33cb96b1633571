"""Faults of the operating system: an error at the n-th call of the library.

Modules that call the system get a proxied ``os``, ``io`` and ``pyarrow`` within a block, so that
neither the test runner nor module imports are affected.  Syncs are only counted: tests do not wait for the
disk.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa

from trilake.delta.commands.maintenance import vacuum_files
from trilake.delta.commands.merge import source as merge_source
from trilake.delta.commands.optimize import curve_order
from trilake.storage import durable, local, local_writer, staging
from trilake.trevni.blocks import encode
from trilake.trevni.tables import jobs

#: Kinds of calls that can end in each error.
CHANGES = frozenset({"create", "write", "sync", "link", "rename", "mkdir"})
REACH: dict[int, frozenset[str]] = {
    errno.ENOSPC: CHANGES,
    errno.EDQUOT: CHANGES,
    errno.EROFS: frozenset({"create", "link", "rename", "mkdir", "unlink", "rmdir"}),
    errno.EMFILE: frozenset({"create", "open", "scan", "map"}),
    errno.EIO: CHANGES | {"open", "scan", "map", "read", "stat", "unlink", "rmdir"},
}  # fmt: skip


@dataclass
class OsFaults:
    """Raise ``code`` at the ``nth`` matching call, counted from 1; if it ``lasts``, at all later ones as well."""

    code: int
    nth: int
    lasts: bool = False
    calls: list[str] = field(default_factory=list)
    hits: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, kind: str, what: object = "") -> None:
        """Count a call; raise if it is the failing one."""
        if kind not in REACH[self.code]:
            return
        with self._lock:
            self.calls.append(f"{kind} {os.path.basename(os.fsdecode(what)) if isinstance(what, str | bytes) else ''}")
            number = len(self.calls)
            hit = number == self.nth or (self.lasts and number > self.nth)
            self.hits += hit
        if hit:
            raise OSError(self.code, os.strerror(self.code), what if isinstance(what, str | bytes) else None)

    @contextmanager
    def happening(self) -> Iterator[None]:
        """Enable the faults in the block."""
        system, files, arrow = _Os(self), _Io(self), _Arrow(self)
        with ExitStack() as stack:
            for module in (durable, local, local_writer, staging, jobs, vacuum_files):
                stack.enter_context(mock.patch.object(module, "os", system))
            stack.enter_context(mock.patch.object(local_writer, "io", files))
            # Pretend that the disk supports syncing the whole file system.
            for name, value in (("_syncs_file_systems", True), ("_kind", 0xEF53), ("_unwritten", 0)):
                stack.enter_context(mock.patch.object(durable, name, lambda *_, value=value: value))
            stack.enter_context(mock.patch.object(durable, "sync_file_system", system.fsync))
            for module in (local, local_writer, merge_source, curve_order):
                stack.enter_context(mock.patch.object(module, "pa", arrow))
            for module in (merge_source, curve_order, encode, staging):
                if hasattr(module, "tempfile"):
                    stack.enter_context(mock.patch.object(module, "tempfile", _Temporary(self)))
            for module in (staging, jobs):
                stack.enter_context(mock.patch.object(module, "shutil", _Shutil(self)))
            yield


class _Proxy:
    """A module with some functions that can fail."""

    _module: Any

    def __init__(self, faults: OsFaults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _failing(name: str, kind: str) -> Callable[..., Any]:
    """Wrap ``os.name`` in a function that can fail before it does anything."""
    real = getattr(os, name)

    def call(self: _Proxy, first: Any, *rest: Any, **more: Any) -> Any:
        self._faults.call(kind, first)
        return real(first, *rest, **more)

    return call


class _Os(_Proxy):
    _module = os

    open, scandir, listdir = _failing("open", "open"), _failing("scandir", "scan"), _failing("listdir", "scan")
    read, pread = _failing("read", "read"), _failing("pread", "read")
    stat, fstat = _failing("stat", "stat"), _failing("fstat", "stat")
    link, rename, mkdir = _failing("link", "link"), _failing("rename", "rename"), _failing("mkdir", "mkdir")
    unlink, rmdir = _failing("unlink", "unlink"), _failing("rmdir", "rmdir")

    def fsync(self, fd: int) -> None:
        self._faults.call("sync", f"/proc/self/fd/{fd}")


class _Io(_Proxy):
    _module = io

    def FileIO(self, path: str, mode: str) -> io.FileIO:
        self._faults.call("create", path)
        faults = self._faults

        class File(io.FileIO):
            def write(self, data: Any, /) -> int:
                try:
                    faults.call("write", path)
                except OSError:
                    super().write(memoryview(data)[: len(data) // 2])  # like a full disk
                    raise
                return super().write(data) or 0

        return File(path, mode)


class _Arrow(_Proxy):
    _module = pa

    def memory_map(self, path: Any, mode: str = "r") -> Any:
        self._faults.call("map", path)
        return pa.memory_map(path, mode)

    def OSFile(self, path: Any, mode: str = "r") -> Any:
        self._faults.call("open" if mode == "r" else "create", path)
        if mode == "r":
            return pa.OSFile(path, mode)
        return pa.PythonFile(_Io(self._faults).FileIO(path, "wb"), "w")


class _Temporary(_Proxy):
    _module = tempfile

    def TemporaryDirectory(self, *args: Any, **more: Any) -> Any:
        self._faults.call("mkdir")
        return tempfile.TemporaryDirectory(*args, **more)

    def TemporaryFile(self, *args: Any, **more: Any) -> Any:
        self._faults.call("create")
        return tempfile.TemporaryFile(*args, **more)


class _Shutil(_Proxy):
    _module = shutil

    def rmtree(self, path: str, ignore_errors: bool = False) -> None:
        try:
            self._faults.call("unlink", path)
        except OSError:
            if not ignore_errors:
                raise
            return
        shutil.rmtree(path, ignore_errors=ignore_errors)
