"""Rules for Delta commits besides their rows: flags, row ids, times, features and metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.delta.delta_history import Version

#: Operations that add files without reading the table.
BLIND = frozenset(("append", "batch", "stream", "txn", "given"))
#: Name prefix of columns with the value of ``id``.
EXTRA = "x"
#: Operations that may change the table's metadata.
_METADATA = frozenset(
    (
        *("column", "narrow", "property", "drop", "restore", "rename", "bigger", "constraint", "unconstrain"),
        *("feature", "replace", "cluster", "sync"),
    )
)
_ROW_TRACKING = "delta.rowTracking"


class CommitRules:
    """Check every commit of a table, in order."""

    def __init__(self) -> None:
        #: First row id and the one after the last, by data file.
        self.row_ids: dict[str, tuple[int, int]] = {}

    def check(self, version: int, current: Version, before: Version | None, old: Version | None = None) -> None:
        """Raise :class:`Violation` if a commit breaks a rule; ``old`` is the version that a restore names."""
        self._flags(version, current)
        self._features(version, current)
        self._row_ids(version, current, old)
        _clustering(version, current)
        if before is not None:
            _times(version, current, before)
            _metadata(version, current, before)
            _applications(version, current, before)

    def _flags(self, version: int, current: Version) -> None:
        op = current.op
        if op is None or not current.info.get("isBlindAppend") or not (current.adds or current.removes):
            return
        if op.kind not in BLIND or current.removes:
            raise Violation(f"version {version} by #{op.number} {op.kind} calls itself a blind append")

    def _features(self, version: int, current: Version) -> None:
        features = current.protocol.get("writerFeatures") or ()
        if any(a.get("deletionVector") for a in current.adds) and "deletionVectors" not in features:
            raise Violation(f"version {version} adds deletion vectors, which the table's protocol does not have")

    def _row_ids(self, version: int, current: Version, old: Version | None) -> None:
        if not _supports_row_ids(current):
            # Ids are guaranteed while the feature is enabled; dropping it removes them from the files.
            self.row_ids.clear()
            return
        for add in current.adds:
            first = add.get("baseRowId")
            if first is None or add.get("defaultRowCommitVersion") is None:
                raise Violation(f"version {version} adds {add['path']} without row ids")
            ids = first, first + orjson.loads(add["stats"])["numRecords"]
            known = self.row_ids.setdefault(add["path"], ids)
            if known[0] != first and old is not None and _had_no_ids(add["path"], old):
                known = self.row_ids[add["path"]] = ids  # a restored file from a version without ids
            if known[0] != first:
                raise Violation(f"version {version} gives {add['path']} the row ids from {first} on, not {known[0]}")
            for path, (start, end) in self.row_ids.items():
                if path != add["path"] and start < ids[1] and first < end:
                    raise Violation(f"version {version} gives {add['path']} row ids that {path} has: {ids}")
        if current.adds:
            domain = current.keyed["domainMetadata"].get(_ROW_TRACKING)
            mark = -1 if domain is None else orjson.loads(domain["configuration"])["rowIdHighWaterMark"]
            highest = max(end for _, end in self.row_ids.values()) - 1
            if mark < highest:
                raise Violation(f"version {version} has given the row id {highest}, and says that {mark} is the last")


def _had_no_ids(path: str, version: Version) -> bool:
    """Return whether a version has no row ids, or none yet for a file."""
    ids = [add.get("baseRowId") for add in version.live.values() if add["path"] == path]
    return not _supports_row_ids(version) or (bool(ids) and ids[0] is None)


def _supports_row_ids(version: Version) -> bool:
    return "rowTracking" in (version.protocol.get("writerFeatures") or ())


def _clustering(version: int, current: Version) -> None:
    domain = current.keyed["domainMetadata"].get("delta.clustering")
    columns = orjson.loads(domain["configuration"])["clusteringColumns"] if domain else []
    fields = orjson.loads(current.metadata["schemaString"])["fields"]
    names = {f["metadata"].get("delta.columnMapping.physicalName", f["name"]) for f in fields}
    unknown = [c for c in columns if c[0] not in names]
    if unknown:
        raise Violation(f"version {version} is clustered by columns that it does not have: {unknown}")


def _times(version: int, current: Version, before: Version) -> None:
    if current.metadata["configuration"].get("delta.enableInCommitTimestamps") != "true":
        return
    actual, last = current.info.get("inCommitTimestamp"), before.info.get("inCommitTimestamp")
    if actual is None or current.actions[0][0] != "commitInfo":
        raise Violation(f"version {version} does not begin with its time")
    if last is not None and actual <= last:
        raise Violation(f"version {version} says that it is of {actual}, the one before of {last}")


def _metadata(version: int, current: Version, before: Version) -> None:
    """Check that a change of metadata is the one of its operation, on top of the version before."""
    op = current.op
    if op is None:
        return
    changed = any(n == "metaData" for n, _ in current.actions)
    moved = bool(current.numbers) and _unmarked(current.metadata) == _unmarked(before.metadata)
    if changed and op.kind not in _METADATA and not moved:
        raise Violation(f"version {version} by #{op.number} {op.kind} changes the table's metadata")
    if op.kind in ("column", "narrow"):
        names, expected = _names(current.metadata), _names(before.metadata)
        expected = [*expected, f"c{op.number}"] if op.kind == "column" else expected
        if names != expected and not (op.kind == "narrow" and set(names) < set(expected)):
            raise Violation(f"version {version} by #{op.number} {op.kind} has the columns {names}, not {expected}")
    if op.kind == "property":
        actual, expected_map = current.metadata["configuration"], before.metadata["configuration"]
        if actual != {**expected_map, "note": f"#{op.number}"}:
            raise Violation(
                f"version {version} by #{op.number} has the properties {actual}, not those of {expected_map}"
            )


def _unmarked(metadata: dict[str, Any]) -> Any:
    """Return metadata without the high watermarks of identity columns."""
    schema = orjson.loads(metadata["schemaString"])
    for field in schema["fields"]:
        field["metadata"].pop("delta.identity.highWaterMark", None)
    return {**metadata, "schemaString": schema}


def _names(metadata: dict[str, Any]) -> list[str]:
    return [f["name"] for f in orjson.loads(metadata["schemaString"])["fields"]]


def _applications(version: int, current: Version, before: Version) -> None:
    for name, txn in ((n, d) for n, d in current.actions if n == "txn"):
        del name
        last = before.keyed["txn"].get(txn["appId"])
        if last is not None and last["version"] >= txn["version"]:
            raise Violation(f"version {version} has batch {txn['version']} of {txn['appId']} after {last['version']}")
