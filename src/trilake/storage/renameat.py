"""``rename_noreplace``: the Linux system call ``renameat2`` with ``RENAME_NOREPLACE``, which Python does not offer.

It is what is left for ``put_if_absent`` where a file system has no hard links (FAT, many FUSE and network mounts).
"""

from __future__ import annotations

import ctypes
import errno
import os

from trilake.errors import StorageError

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def rename_noreplace(source: str, target: str) -> None:
    """Rename a file in one step unless ``target`` exists.

    Raises ``FileExistsError`` where it does, ``StorageError`` where neither the system nor the file system can promise
    that, and ``OSError`` otherwise.  On an error nothing has changed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if call is not None:
        if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
        raise StorageError(
            "this file system can neither link files nor rename them without replacing",
            help="keep the table on a file system with hard links: without them two writers could both win",
            file=target,
        )
    raise OSError(code, os.strerror(code), target)
