"""A table at one version: without files, with files, or with a checkpoint whose files are read lazily."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from trilake.delta.engine import Engine
from trilake.delta.log.replay import NewerFiles, State, apply, empty_state
from trilake.delta.log.segment import LogSegment
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol
from trilake.delta.protocol.column_mapping import check_mode
from trilake.delta.protocol.features import check_mapping_listed, check_readable
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.schema import StructType
from trilake.errors import MissingMetadataError


@dataclass(frozen=True)
class Head:
    """A table at one version, without its files.

    ``state`` has no file actions; a :class:`Snapshot` has all.
    """

    uri: str
    version: int
    state: State
    segment: LogSegment
    engine: Engine

    @property
    def protocol(self) -> Protocol:
        assert self.state.protocol is not None
        return self.state.protocol

    @property
    def metadata(self) -> Metadata:
        assert self.state.metadata is not None
        return self.state.metadata

    @cached_property
    def schema(self) -> StructType:
        return self.metadata.schema

    @property
    def properties(self) -> TableProperties:
        return TableProperties(self.metadata.configuration)

    def has_transaction(self, app_id: str, version: int) -> bool:
        """Whether ``app_id`` has already committed transaction ``version`` or a later one."""
        txn = self.state.txns.get(app_id)
        return txn is not None and int(txn.get("version") or 0) >= version


@dataclass(frozen=True)
class Snapshot(Head):
    """A table at one version, with its files."""

    @property
    def adds(self) -> pa.Table:
        """One row per logical file, with the fields of the ``add`` action."""
        return self.state.adds


@dataclass(frozen=True)
class PendingSnapshot(Head):
    """A version with a large checkpoint whose files are not read yet.

    ``actions`` belong to the commits after it.  :meth:`~trilake.delta.log.log.DeltaLog.load` reads the files.
    """

    actions: ActionBatch

    @cached_property
    def newer(self) -> State:
        """The files of the commits after the checkpoint."""
        return apply(empty_state(), self.actions)

    @cached_property
    def newer_files(self) -> NewerFiles:
        """The files that these commits touch."""
        return NewerFiles(self.actions.add, self.actions.remove)


def check_complete(head: Head) -> None:
    """Raise ``MissingMetadataError`` unless a version has metadata and a protocol."""
    state = head.state
    lacking = [n for n, a in (("metaData", state.metadata), ("protocol", state.protocol)) if a is None]
    if lacking:
        raise MissingMetadataError(
            f"the log holds no {' and no '.join(lacking)} action (metadata or protocol missing)",
            help="the log's first commit or its checkpoint was damaged; restore it from a copy",
            file=head.uri,
            version=head.version,
        )


def check_readable_head(head: Head) -> None:
    """Refuse a table that trilake cannot read correctly.

    Raises ``MissingMetadataError``, and ``UnsupportedProtocolError`` for an unsupported protocol version, feature
    or column mapping mode.
    """
    check_complete(head)
    check_readable(head.protocol, uri=head.uri, version=head.version)
    check_mode(head.metadata, uri=head.uri, version=head.version)
    check_mapping_listed(head.protocol, head.metadata, uri=head.uri, version=head.version)
