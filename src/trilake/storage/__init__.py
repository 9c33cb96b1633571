"""Stores: one interface over the local file system, object stores and memory.

:func:`open_store` picks the implementation by URI; :mod:`trilake.storage.base` states what every store promises.
"""

from trilake.storage.base import ObjectMeta, Store
from trilake.storage.uri import open_store

__all__ = ["ObjectMeta", "Store", "open_store"]
