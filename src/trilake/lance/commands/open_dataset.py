"""``OpenDataset``: the interface of a dataset for helper classes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol, Self

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.fragment_writer import NullPolicy
from trilake.lance.commit import runtime_with
from trilake.lance.scan.snapshot import Snapshot
from trilake.storage import open_store
from trilake.storage.base import Store


def place_of(uri: Any, storage_options: Mapping[str, str] | None) -> tuple[Store, str]:
    """Return the store and URI of a dataset given by URI or as an open dataset.

    Raises ``InvalidArgumentError`` if the storage options of an open dataset differ.
    """
    snapshot = getattr(uri, "snapshot", None)
    if not isinstance(snapshot, Snapshot):
        if uri == "memory://":  # a new anonymous store
            uri = f"memory://{runtime_with(None).new_id()}"
        return open_store(uri, dict(storage_options or {})), os.fspath(uri)
    if storage_options is not None and dict(storage_options) != dict(snapshot.store.options):
        raise InvalidArgumentError(
            "the dataset was opened with different storage_options", help="leave them out, or pass the dataset's URI"
        )
    return snapshot.store, uri.uri


class OpenDataset(Protocol):
    """A dataset at one version, which commands can move to a new version."""

    snapshot: Snapshot
    nulls: NullPolicy

    @property
    def uri(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def moved(self, snapshot: Snapshot) -> None: ...

    def _beside(self, snapshot: Snapshot) -> Self: ...

    def get_fragment(self, fragment_id: int) -> Any: ...

    def scanner(self, *args: Any, **more: Any) -> Any: ...
