"""``UploadWriter``: the writer behind :meth:`ObjectStore.open_output`.

Content that fits into one part is sent as one request at close.  More is sent in parts while it is written, by a thread
with a short queue; closing completes the upload, discarding makes the thread's source fail, on which obstore aborts the
upload.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread

from trilake.errors import StorageError
from trilake.storage.writer import AtomicWriter

#: Bytes per part: 10,000 of them, the limit of S3, make 80 GiB.
PART = 8 << 20
_QUEUED, _PARALLEL = 2, 4


class _Discarded(Exception):
    """Thrown into the upload to abort it."""


class UploadWriter(AtomicWriter):
    """``send(data, **how)`` sends bytes, or an iterator of parts, like obstore's ``put``; its errors are typed."""

    def __init__(self, key: str, send: Callable[..., None]) -> None:
        self._send = send
        self._part = bytearray()
        self._upload: _Upload | None = None
        super().__init__(key)

    def _append(self, data: memoryview) -> None:
        while len(data):
            if len(self._part) == PART:
                self._pass_on()
            room = PART - len(self._part)
            self._part += data[:room]
            data = data[room:]

    def _pass_on(self) -> None:
        if self._upload is None:
            self._upload = _Upload(self.name, self._send)
        self._upload.pass_on(bytes(self._part))
        self._part = bytearray()

    def _publish(self) -> None:
        if self._upload is None:
            self._send(bytes(self._part), use_multipart=False)
            return
        self._pass_on()
        self._upload.pass_on(None)
        self._upload.outcome.result()

    def _discard(self) -> None:
        self._part = bytearray()
        if self._upload is not None:
            with suppress(_Discarded, StorageError):
                self._upload.pass_on(_Discarded())
                self._upload.outcome.result()


class _Upload:
    """The thread.  It holds no reference to the writer, so that an abandoned writer is collected, which discards it."""

    def __init__(self, key: str, send: Callable[..., None]) -> None:
        self.outcome: Future[None] = Future()
        self._parts: queue.Queue[bytes | _Discarded | None] = queue.Queue(_QUEUED)
        self._send = send
        # A daemon: an interpreter that exits with an open writer must not wait for it.
        Thread(target=self._run, name=f"trilake-upload {key}", daemon=True).start()

    def pass_on(self, part: bytes | _Discarded | None) -> None:
        """Queue the next part, the end (``None``), or the order to abort."""
        while True:
            try:
                return self._parts.put(part, timeout=0.1)
            except queue.Full:
                if self.outcome.done():  # the upload ended before its source did
                    return self.outcome.result()

    def _run(self) -> None:
        try:
            self._send(self._source(), use_multipart=True, chunk_size=PART, max_concurrency=_PARALLEL)
        except BaseException as e:  # noqa: BLE001 - handed to whoever waits for the result
            self.outcome.set_exception(e)
        else:
            self.outcome.set_result(None)

    def _source(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _Discarded):
                raise part
            yield part
