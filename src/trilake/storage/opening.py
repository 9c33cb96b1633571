"""``open_store``: open a store by URI or path."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trilake.storage.base import Store
from trilake.storage.local import LocalStore
from trilake.storage.memory import MemoryStore
from trilake.storage.uri import check_same_kind, parse_location


def open_store(uri_or_path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
    """Open the store with the root ``uri_or_path``, which need not exist.

    Parameters
    ----------
    uri_or_path: a local path (``~`` and relative paths too), ``file:/x``, ``file:///x``, ``memory://name`` (shared
        within the process), ``s3://``, ``s3a://``, ``gs://``, ``az://container/…`` or
        ``abfss://container@account.dfs.core.windows.net/…``.
    options: credentials, region, endpoint and so on of object stores, see :mod:`trilake.storage.options`; environment
        variables are the defaults.

    Raises ``InvalidArgumentError`` for an invalid location and ``UnknownOptionError`` for an unknown option.
    """
    location = parse_location(uri_or_path)
    opts = dict(options or {})
    if location.scheme == "file":
        return LocalStore(location.uri, "/" + location.path, opts)
    if location.scheme == "memory":
        return MemoryStore(location.authority, location.path, uri=location.uri, options=opts)
    # Loading obstore takes longer than opening a local table, which does not need it.
    from trilake.storage.object import open_object_store

    return open_object_store(location, opts)


def open_sibling(store: Store, uri: str) -> Store:
    """Open a store with the same options at another root, for absolute paths in a log.

    Raises ``OtherStoreError`` for another kind of store: a table in a bucket must not make readers open local files.
    """
    check_same_kind(store.uri, uri, store.options)
    return store.like(open_store(uri, store.options))
