"""``open_store``: the store that a string names."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trilake.storage.base import Store
from trilake.storage.local import LocalStore
from trilake.storage.memory import MemoryStore
from trilake.storage.uri import check_same_kind, parse_location


def open_store(uri_or_path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
    """The store whose root is ``uri_or_path``; nothing needs to exist there yet.

    Parameters
    ----------
    uri_or_path: a local path (``~`` and relative paths too), ``file:/x``, ``file:///x``, ``memory://name`` (shared
        within the process), ``s3://``, ``s3a://``, ``gs://``, ``az://container/…`` or
        ``abfss://container@account.dfs.core.windows.net/…``.
    options: credentials, region, endpoint and so on for object stores, see :mod:`trilake.storage.options`; environment
        variables stand in for options that are not given.  Local and memory stores need none and pass them on to
        :func:`open_sibling`.

    Raises ``InvalidArgumentError`` for a location it cannot understand and ``UnknownOptionError`` for an option it does
    not know.
    """
    location = parse_location(uri_or_path)
    opts = dict(options or {})
    if location.scheme == "file":
        return LocalStore(location.uri, "/" + location.path, opts)
    if location.scheme == "memory":
        return MemoryStore(location.authority, location.path, uri=location.uri, options=opts)
    # Loading obstore takes longer than opening a local table, which never needs it.
    from trilake.storage.object import open_object_store

    return open_object_store(location.scheme, location.authority, location.path, location.uri, opts)


def open_sibling(store: Store, uri: str) -> Store:
    """A store with the same options at another root, for absolute paths in a log.

    Raises ``OtherStoreError`` for a root of another kind, unless the option ``allow_other_stores`` is ``"true"``: a
    table in a bucket must not make its readers open files of their own disk.
    """
    check_same_kind(store.uri, uri, store.options)
    return store.like(open_store(uri, store.options))
