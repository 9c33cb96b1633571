"""``FeatureDrops``: disable a table feature, and drop it once nothing needs it."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from trilake.delta.commands.alter import feature_removal
from trilake.delta.commands.alter.metadata_commits import MetadataCommits
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log_cleanup import DAY_MS, cleanup_log
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.metadata.schema_changes import MetadataChange
from trilake.delta.protocol.feature import Feature, FeatureRemoval
from trilake.errors import InvalidArgumentError


class FeatureDrops(MetadataCommits):
    """Drops features of one table, in one commit or several."""

    def _drop(self, name: str, truncate_history: bool, protect_history: bool) -> int:
        snapshot, has_committed = self._snapshot(), False
        row, removal = feature_removal.removable(snapshot.protocol, name, truncate_history=truncate_history)
        if removal.in_past is not None:
            snapshot, has_committed = self._turned_off(snapshot, row, removal)
            if truncate_history or has_committed:
                # Log cleanup can truncate history only at a checkpoint.
                write_checkpoint(self.log, snapshot, self.runtime)
            if truncate_history:
                cleanup_log(self.log, self.runtime, retention_ms=DAY_MS)
        trace = feature_removal.trace_in(self.log, snapshot, row)
        older = None if trace is not None else feature_removal.history_trace(self.log, removal, changed=has_committed)
        if trace is not None or (older is not None and not protect_history):
            raise feature_removal.in_use(row.name, trace or older)
        change = feature_removal.removed(
            snapshot.protocol, snapshot.metadata, row, removal, truncate_history=truncate_history
        )
        if older is not None:
            change = feature_removal.protected(change, snapshot.version + 1)
        files = feature_removal.bare_files(snapshot, removal)
        version = self._commit(snapshot, change, files=files, whole=True)
        if older is not None:
            # Readers without the feature start here and replay no older commit.
            write_checkpoint(self.log, self.log.opened(version), self.runtime)
        return version

    def _unmapped(self, properties: Mapping[str, str]) -> int:
        """Rewrite files with display names as column names, and set ``properties``; the table keeps the feature.

        Raises ``InvalidArgumentError`` if names, or changes in older versions, need column mapping.
        """
        snapshot = self._snapshot()
        row, removal = feature_removal.removable(snapshot.protocol, "columnMapping")
        trace = feature_removal.trace_in(self.log, snapshot, row)
        if trace is None:
            after = feature_removal.with_properties(removal.metadata(row.turned_off(snapshot.metadata)), properties)
            change = MetadataChange(snapshot.protocol, after, "REMOVE COLUMN MAPPING", {})
            return self._commit(snapshot, change, whole=True)
        outcome = feature_removal.rewrite_files(
            self.log, snapshot, row, runtime=self.runtime, run=self.run, properties=properties
        )
        if outcome is None:
            raise InvalidArgumentError(
                f"column mapping cannot be turned off: {trace.what}",
                help=trace.help,
                condition="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
            )
        return outcome

    def _turned_off(self, snapshot: Snapshot, row: Feature, removal: FeatureRemoval) -> tuple[Snapshot, bool]:
        """Disable a feature and rewrite its files if that helps; return the table, and whether that took a commit."""
        before = snapshot.version
        for rewritten in (False, True):
            # Check the version on which the commit is based: a rename in between is a conflict.
            in_use = feature_removal.trace_in(self.log, snapshot, row) is not None
            off = _turn_off(snapshot, row, removal, used=in_use)
            if off.changes(snapshot.protocol, snapshot.metadata):
                snapshot = self.log.snapshot(self._commit(snapshot, off, whole=not in_use))
            if not in_use or rewritten:
                break
            outcome = feature_removal.rewrite_files(self.log, snapshot, row, runtime=self.runtime, run=self.run)
            snapshot = snapshot if outcome is None else self.log.snapshot(outcome)
        has_committed = snapshot.version > before
        if (
            has_committed
            and removal.in_past is not None
            and removal.in_past(feature_removal.past_of(self.log.parse(self.log.commits(snapshot.version))))
        ):
            # The newest commit is itself a trace, since it removed files with vectors: history can only end after it.
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "Empty Commit", {})
            snapshot = self.log.snapshot(self._commit(snapshot, same))
        return snapshot, has_committed


def _turn_off(head: Head, row: Feature, removal: FeatureRemoval, *, used: bool) -> MetadataChange:
    off = row.turned_off(head.metadata)
    if not used:
        off = removal.metadata(off)
    keys = sorted(set(head.metadata.configuration) - set(off.configuration))
    parameters = {"properties": orjson.dumps(keys).decode(), "ifExists": "true"}
    return MetadataChange(head.protocol, off, "UNSET TBLPROPERTIES", parameters)
