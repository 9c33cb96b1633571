"""``OpenDataset``: what helpers of a dataset need of it, so that they need not know its class."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from trilake.lance.commands.fragment_writer import NullPolicy
from trilake.lance.scan.snapshot import Snapshot


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
