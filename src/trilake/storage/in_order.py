"""Write small local files so that their order survives a power failure: sync all contents, then rename in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from trilake.errors import ObjectExistsError, StorageError
from trilake.storage.durable import make_folder, sync, write_contents
from trilake.storage.local_writer import behind_link, link, passes_link, storage_error, temporary_name

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_in_order(root: str, files: Sequence[tuple[str, bytes, bool | None]]) -> None:
    """Write ``(key, data, absent)`` in order; ``absent`` is ``None`` for a new file, which gets its name at once."""
    #: Open files with their first names, and how many have their final names.
    temporaries: list[tuple[int, str]] = []
    num_renamed, key, absent = 0, "", None
    try:
        for key, data, absent in files:
            first = root + key
            if absent is not None:
                first = f"{os.path.dirname(first)}/{temporary_name()}"
            temporaries.append((_created(first), first))
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(temporaries[-1][0], rest) :]
        if not write_contents([fd for fd, _ in temporaries]):
            for fd, _ in temporaries:
                sync(fd)
        for (key, _, absent), (_, first) in zip(files, temporaries, strict=True):
            if absent is not None:
                make_folder(os.path.dirname(first))
                _give_name(first, root, key, absent=absent)
            num_renamed += 1
    except OSError as e:
        raise _error(e, root + key, absent=absent) from e
    finally:
        for i, (fd, first) in enumerate(temporaries):
            os.close(fd)
            if i >= num_renamed:
                with suppress(OSError):
                    os.unlink(first)


def _created(path: str) -> int:
    with suppress(FileNotFoundError):
        return os.open(path, _NEW, 0o666)
    make_folder(os.path.dirname(path))
    return os.open(path, _NEW, 0o666)


def _give_name(first: str, root: str, key: str, *, absent: bool) -> None:
    if absent or passes_link(root, key):
        link(first, root + key)
        with suppress(OSError):  # the object exists; at worst a temporary file is left
            os.unlink(first)
    else:
        os.rename(first, root + key)


def _error(error: OSError, path: str, *, absent: bool | None) -> StorageError:
    if isinstance(error, StorageError):
        return error
    if isinstance(error, FileExistsError) and absent:
        return ObjectExistsError("the object already exists", file=path)
    if isinstance(error, FileExistsError) and absent is False:
        return behind_link("replaced", path)
    return storage_error(error, "write", path, writing=True)
