r"""``AtomicWriter``: the file object behind :meth:`Store.open_output`.

::

                 close()
    open ---------------------> published   the object is there, whole and durable
     | \----------------------> failed      as the error of close() says
     |
     | discard(), an exception in the with block, or garbage collection
     \------------------------> discarded   nothing is there
"""

from __future__ import annotations

import io
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import IO, Any, cast

import pyarrow as pa

from trilake.errors import StorageError


class AtomicWriter(io.RawIOBase):
    """A write-only binary file whose content appears at once, when it is closed.

    A subclass writes bytes (:meth:`_append`), turns them into an object (:meth:`_publish`) and discards them
    (:meth:`_discard`); all three only raise errors of :mod:`trilake.errors`.
    """

    def __init__(self, key: str) -> None:
        super().__init__()
        #: Key of the future object.
        self.name = key
        self._position = 0
        self._failed = False

    @abstractmethod
    def _append(self, data: memoryview) -> None: ...

    @abstractmethod
    def _publish(self) -> None: ...

    @abstractmethod
    def _discard(self) -> None: ...

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        """Append a bytes-like object and return its size in bytes."""
        self._checkClosed()
        view = memoryview(data).cast("B")
        try:
            self._append(view)
        except BaseException:
            # Missing bytes would be missing in the object: it must not be published any more.
            self._failed = True
            raise
        self._position += len(view)
        return len(view)

    def native(self) -> pa.NativeFile | None:
        """A native Arrow file for the content, instead of :meth:`write`, without copies.

        ``None`` where there is none, or something was written already.  Its errors are the system's;
        :meth:`failed_natively` translates them.
        """
        return None

    def failed_natively(self, error: OSError) -> StorageError:
        """Translate an error of the file of :meth:`native`; the object cannot be published any more."""
        self._failed = True
        return StorageError(f"cannot write the file: {error.strerror or error}", file=self.name)

    def taking_much(self) -> AbstractContextManager[None]:
        """A block that writes many megabytes, which may be flushed early."""
        return nullcontext()

    def close(self) -> None:
        """Publish the object; after a failed write, discard it instead."""
        if self.closed:
            return
        super().close()
        if self._failed:
            self._discard()
        else:
            self._publish()

    def discard(self) -> None:
        """Discard what was written; the object does not appear."""
        if not self.closed:
            super().close()
            self._discard()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # io.IOBase closes unreferenced files, and that would publish half an object.
        if hasattr(self, "_failed"):
            self.discard()

    def as_io(self) -> IO[bytes]:
        """Itself, typed as a binary file."""
        return cast("IO[bytes]", self)
