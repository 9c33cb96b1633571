"""``CommitPlan``: the content of a commit, apart from its version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import Metadata, Protocol


@dataclass(frozen=True)
class CommitPlan:
    """The content of a commit, except its version.

    ``file_actions`` are whole action objects with one key each, such as ``{"add": {...}}``; ``txns`` are the
    transaction versions by application, and ``domains`` the configurations of metadata domains (``None`` removes one).
    """

    operation: str
    parameters: Mapping[str, Any]
    file_actions: Sequence[Mapping[str, Any]]
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    user_metadata: str | None = None
    read: ReadSet = field(default_factory=ReadSet)
    txns: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str | None] = field(default_factory=dict)
    #: The largest assigned row id, in case the table's domain lacks it because the feature was dropped.
    row_id_mark: int = -1
    #: Whether a new table may be created in a folder with unreferenced files, as a conversion does.
    among_files: bool = False
    #: Recomputes the plan if identity columns have advanced; see :class:`~trilake.delta.commit.conflicts.ReadSet`.
    rebase: Callable[[CommitPlan, Metadata], CommitPlan] | None = None

    @property
    def complete_read(self) -> ReadSet:
        """The read set, completed with what the plan changes."""
        return replace(
            self.read,
            app_ids=self.read.app_ids | set(self.txns),
            domains=self.read.domains | set(self.domains),
            changes_metadata=self.read.changes_metadata or self.metadata is not None,
            rebases_identity=self.rebase is not None,
        )

    @property
    def domain_actions(self) -> dict[str, dict[str, Any]]:
        """The ``domainMetadata`` actions by domain."""
        return {d: {"domain": d, "configuration": c or "", "removed": c is None} for d, c in self.domains.items()}


@dataclass(frozen=True)
class CommitEvent:
    """A finished commit: ``version``, on top of ``base`` (``None`` for a new table), from ``plan``.

    ``metadata`` and ``domains`` belong to the new version.  A hook must not raise if a later commit can do its work.
    """

    log: DeltaLog
    base: Head | None
    plan: CommitPlan
    metadata: Metadata
    version: int
    runtime: Runtime
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# --- Turn rows of a snapshot's files into add actions -----------------------------------------------------------------

#: Fields of an ``add`` action whose Arrow form differs from JSON.
_OTHER_FORM = ("partitionValues", "tags", "deletionVector")


def _as_json(name: str, value: Any) -> Any:
    if name == "partitionValues":
        return dict(value or ())
    if value is None or name not in _OTHER_FORM:
        return value
    return dict(value) if name == "tags" else {k: v for k, v in value.items() if v is not None}


def add_action(row: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The ``add`` action of a row of a snapshot's files, with some fields changed; ``None`` drops a field."""
    out = {name: _as_json(name, value) for name, value in {**row, **changes}.items()}
    return {"add": {k: v for k, v in out.items() if v is not None}}


def add_actions(files: pa.Table, **changes: Any) -> list[dict[str, Any]]:
    """The ``add`` actions of all files of a snapshot, each with the same changes."""
    names, columns, gaps = list[str](), list[Sequence[Any]](), False
    for name in files.column_names:
        nulls = files[name].null_count if name != "partitionValues" else 0
        if name in changes or (nulls and nulls == files.num_rows):
            continue
        values = files[name].to_pylist()
        names.append(name)
        columns.append([_as_json(name, v) for v in values] if name in _OTHER_FORM else values)
        gaps = gaps or nulls > 0
    names += changes
    rows = zip(*columns, *map(repeat, changes.values()))
    if gaps:
        return [{"add": {k: v for k, v in zip(names, row) if v is not None}} for row in rows]
    return [{"add": dict(zip(names, row))} for row in rows]
