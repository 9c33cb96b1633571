"""``OpenDataset``: what helpers of a dataset need of it, so that they need not know its class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.fragment_writer import NullPolicy
from trilake.lance.commit import runtime_with
from trilake.lance.scan.snapshot import Snapshot
from trilake.storage import open_store
from trilake.storage.base import Store


def place_of(uri: Any, storage_options: Mapping[str, str] | None) -> tuple[Store, str]:
    """The store and the URI of a dataset, which may be open; options that differ from its own are refused.

    Raises ``InvalidArgumentError``.
    """
    snapshot = getattr(uri, "snapshot", None)
    if not isinstance(snapshot, Snapshot):
        if uri == "memory://":  # a place of its own, which nothing else can name
            uri = f"memory://{runtime_with(None).new_id()}"
        return open_store(uri, dict(storage_options or {})), os.fspath(uri)
    if storage_options is not None and dict(storage_options) != dict(snapshot.store.options):
        raise InvalidArgumentError(
            "the dataset is open, with other storage_options", help="leave them out, or pass the dataset's URI"
        )
    return snapshot.store, uri.uri


class OpenDataset(Protocol):
    """A dataset at one version, which commands move to the version they make."""

    snapshot: Snapshot
    nulls: NullPolicy

    @property
    def uri(self) -> str:
        """The path or URI of the dataset."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""

    def moved(self, snapshot: Snapshot) -> None:
        """Show another version from now on."""

    def get_fragment(self, fragment_id: int) -> Any:
        """The fragment with an id, if there is one."""

    def scanner(self, *args: Any, **more: Any) -> Any:
        """Describe a scan."""
