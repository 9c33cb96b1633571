"""Stores: one interface over the local file system, object stores and memory.

:mod:`~trilake.storage.base` defines the interface and its guarantees; :mod:`~trilake.storage.local`,
:mod:`~trilake.storage.object` and :mod:`~trilake.storage.memory` implement it.
"""

from trilake.storage.base import ObjectMeta, Store
from trilake.storage.opening import open_sibling, open_store
from trilake.storage.options import is_storage_option
from trilake.storage.uri import is_absolute, split_absolute

__all__ = ["ObjectMeta", "Store", "is_absolute", "is_storage_option", "open_sibling", "open_store", "split_absolute"]
