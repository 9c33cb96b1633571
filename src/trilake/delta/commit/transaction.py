"""A commit: from a read version and a set of actions to the next version of the table.

The steps of a transaction::

    begin(snapshot) --> actions --> try N+1 --won--> committed --> post-commit maintenance
                                      |  ^
                                 lost |  | no conflict: try the version after the winner
                                      v  |
                                    check every winner --conflict--> ConflictError, nothing committed
                                      |
                        reply lost --+--> read N+1: this commit's token? committed : (absent or foreign) decide as above

The only critical step is ``put_if_absent`` of the commit file.  A lost reply is not a failure: the commit carries a
token, so the log shows whose commit it holds.  Row ids and in-commit timestamps depend on the version, so each attempt
computes them from the winners' state.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from trilake.common.version import __version__
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadAt, ReadSet, Winner, check, check_between
from trilake.delta.files.new_location import check_new_location
from trilake.delta.log.clustering import DOMAIN as CLUSTERING_DOMAIN
from trilake.delta.log.log import DeltaLog, check_same_table
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import Head, State, apply_rare, empty_state
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.features import check_writable, has_feature
from trilake.delta.protocol.iceberg import compat_versions, is_uniform
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.table_features import checkpoint_protection, domain_metadata, in_commit_timestamp
from trilake.delta.protocol.type_widening import recorded_for
from trilake.delta.rules.iceberg_compat import check_compatible, check_files
from trilake.delta.rules.identity import only_marks_moved
from trilake.delta.rules.new_columns import check_reserved_names
from trilake.errors import (
    ConcurrentWriteError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TableExistsError,
    UnknownOutcomeError,
)


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
            protocol=self.read.protocol if self.protocol is None else None,
            app_ids=self.read.app_ids | set(self.txns),
            domains=self._related_domains,
            changes_metadata=self.read.changes_metadata or self.metadata is not None,
            rebases_identity=self.rebase is not None,
        )

    @property
    def _related_domains(self) -> frozenset[str] | None:
        """The metadata domains that the plan writes or depends on; ``None`` for all."""
        if self.protocol is not None and not has_feature(self.protocol, domain_metadata.FEATURE.name):
            return None
        domains = (self.read.domains or frozenset()) | set(self.domains)
        before = self.read.metadata
        if self.metadata is None or (before is not None and only_marks_moved(before, self.metadata)):
            return domains
        return domains | {CLUSTERING_DOMAIN}  # it names columns of the schema

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
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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


#: Attempts before a transaction gives up.
MAX_ATTEMPTS = 1000


@dataclass(frozen=True)
class _CommitBase:
    """The base of the next attempt: the previous version, its state and its ``commitInfo``."""

    version: int
    state: State
    info: Mapping[str, Any] | None = None


def commit(log: DeltaLog, base: Head | None, plan: CommitPlan) -> int:
    """Commit ``plan`` on top of ``base`` (``None`` to create the table); return the new version.

    After winners that do not conflict, it tries again.  Raises a ``ConflictError`` if a winner conflicts or the
    table was dropped, ``TableExistsError`` if a new table exists already, ``UnsupportedProtocolError`` if trilake
    could not write the resulting table, ``InvalidArgumentError`` for columns with names of the change data feed,
    ``UnknownOutcomeError`` if the store cannot tell whether the commit landed, and ``PostCommitHookError`` if the
    commit stands but the symlink manifests failed.
    """
    runtime, hooks = log.engine.runtime, log.engine.commit_hooks(log.store.uri)
    token = runtime.new_id()
    if base is None and not plan.among_files:
        added = frozenset(unquote(str(a["add"]["path"])) for a in plan.file_actions if "add" in a)
        check_new_location(log.store, referenced=added)
    previous = _CommitBase(-1, empty_state()) if base is None else _CommitBase(base.version, base.state)
    read_of_base = replace(plan.read, protocol=previous.state.protocol, metadata=previous.state.metadata)
    plan = replace(plan, read=read_of_base)
    for other in plan.read.elsewhere:
        check_read_at(log, other, previous.version)
    for attempt in range(MAX_ATTEMPTS):
        version = previous.version + 1
        data = _content(log, base, previous, plan, token)
        if base is not None:
            check_same_table(log, base)
        if _try_put(log, version, data, token):
            metadata = plan.metadata or previous.state.metadata
            assert metadata is not None
            domains = {**previous.state.domains, **plan.domain_actions}
            event = CommitEvent(log, base, plan, metadata, version, domains)
            for hook in hooks:
                hook(event)
            return version
        if base is None:
            raise TableExistsError("another writer has just created the table", file=log.store.uri, version=0)
        previous = _past_winners(log, plan.complete_read, previous)
        if plan.rebase is not None and previous.state.metadata is not None:
            plan = plan.rebase(plan, previous.state.metadata)
        if attempt > 3:
            runtime.sleep(min(0.01 * attempt, 0.5))
    raise ConcurrentWriteError(
        f"the commit failed {MAX_ATTEMPTS} times because other writers committed first",
        help="try again when fewer writers commit to this table",
        file=log.store.uri,
        version=previous.version,
        condition="DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
    )


def _content(log: DeltaLog, base: Head | None, previous: _CommitBase, plan: CommitPlan, token: str) -> bytes:
    version, now = previous.version + 1, log.engine.runtime.clock_ms()
    protocol, metadata = plan.protocol or previous.state.protocol, plan.metadata or previous.state.metadata
    assert protocol is not None
    assert metadata is not None
    if plan.metadata is not None:
        check_reserved_names(previous.state.metadata, metadata)
    if plan.protocol is not None or plan.metadata is not None:
        check_writable(protocol, uri=log.store.uri, version=version)
        if compat_versions(metadata.configuration) or is_uniform(metadata.configuration):
            check_compatible(previous.state.metadata, metadata, protocol)
    if compat_versions(metadata.configuration):
        check_files(metadata, (a["add"] for a in plan.file_actions if "add" in a))
    info = _commit_info(log, base, plan, token, now)
    if is_on(metadata.configuration, row_tracking.ENABLED):
        info["tags"] = {row_tracking.PRESERVED: "true"}
    new_metadata = plan.metadata
    if new_metadata is not None and base is not None and version != base.version + 1:
        new_metadata = _for_version(new_metadata, base.metadata, base.version + 1, version)
    if in_commit_timestamp.enabled(metadata):
        time = in_commit_timestamp.next_time(now, _info_before(log, previous))
        # Readers expect it in the first action of the commit.
        info = {in_commit_timestamp.FIELD: time, **info, "timestamp": time}
        before = previous.state.metadata
        if new_metadata is not None and before is not None:
            new_metadata = in_commit_timestamp.stamped(new_metadata, before, version, time)
    actions: Sequence[Mapping[str, Any]] = plan.file_actions
    if row_tracking.assigns(protocol, metadata.configuration):
        actions = row_tracking.assign(actions, previous.state, version, assigned=plan.row_id_mark)
    lines: list[Mapping[str, Any]] = [{"commitInfo": info}]
    if plan.protocol is not None:
        lines.append({"protocol": plan.protocol.to_json()})
    if new_metadata is not None:
        lines.append({"metaData": new_metadata.to_json()})
    lines += [{"txn": {"appId": a, "version": v, "lastUpdated": now}} for a, v in plan.txns.items()]
    lines += [{"domainMetadata": d} for d in plan.domain_actions.values()]
    return b"\n".join(orjson.dumps(a) for a in (*lines, *actions)) + b"\n"


def _for_version(metadata: Metadata, before: Metadata, planned: int, version: int) -> Metadata:
    """Metadata that names the commit's version where it names the ``planned`` one, of the first attempt."""
    schema, configuration = recorded_for(metadata.schema, planned, version), dict(metadata.configuration)
    key = checkpoint_protection.KEY
    if configuration.get(key) == str(planned) != before.configuration.get(key):
        configuration[key] = str(version)
    schema_string = metadata.schema_string if schema is metadata.schema else schema.json()
    return replace(metadata, schema_string=schema_string, configuration=configuration)


def _info_before(log: DeltaLog, previous: _CommitBase) -> Mapping[str, Any] | None:
    if previous.info is not None or previous.version < 0:
        return previous.info
    try:
        return log.commit_info(previous.version)
    except ObjectNotFoundError:  # it was cleaned up, so it is older than any plausible clock
        return None


def _commit_info(log: DeltaLog, base: Head | None, plan: CommitPlan, token: str, now: int) -> dict[str, Any]:
    info: dict[str, Any] = {
        "timestamp": now,
        "userName": _user(),
        "operation": plan.operation,
        # As other writers do: each parameter is a string, with lists as JSON, or null.
        "operationParameters": {
            k: v if v is None or isinstance(v, str) else orjson.dumps(v).decode() for k, v in plan.parameters.items()
        },
        "isolationLevel": plan.read.isolation,
        "isBlindAppend": plan.read.blind and all("add" in a for a in plan.file_actions),
        "operationMetrics": {k: str(v) for k, v in plan.metrics.items()},
        "engineInfo": f"trilake/{__version__}",
        "txnId": token,
    }
    if base is not None:
        info["readVersion"] = base.version
    note = plan.user_metadata if plan.user_metadata is not None else log.user_metadata
    if note is not None:
        info["userMetadata"] = note
    return info


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user id has no name, as in many containers
        return None


def _try_put(log: DeltaLog, version: int, data: bytes, token: str) -> bool:
    key = commit_key(version)
    try:
        log.store.put_if_absent(key, data)
        return True
    except (ObjectExistsError, UnknownOutcomeError) as e:
        # The existing object may be this commit: a retried request finds its own first attempt.  The token shows it.
        try:
            return log.commit_info(version).get("txnId") == token
        except StorageError as unread:
            # The request may still land later, so this is not a failure to retry; and a log that cannot be read proves
            # nothing.
            absent = isinstance(unread, ObjectNotFoundError)
            raise UnknownOutcomeError(
                f"the response to the commit of version {version} was lost, and the commit file "
                + ("does not exist (yet)" if absent else f"cannot be read: {unread.message}"),
                file=f"{log.store.uri}/{key}",
                version=version,
            ) from e


def _past_winners(log: DeltaLog, read: ReadSet, previous: _CommitBase) -> _CommitBase:
    for version, meta in log.commits(previous.version + 1):
        if version != previous.version + 1:
            break  # a gap: the missing commit is not visible yet
        winner = Winner(version, log.parse([(version, meta)]))
        conflict = check(read, winner)
        if conflict is not None:
            raise conflict
        previous = _CommitBase(version, apply_rare(previous.state, winner.actions), dict(winner.info))
    return previous


def check_read_at(log: DeltaLog, other: ReadAt, base: int) -> None:
    """Check that reads at another version are still valid at ``base``, and reads at ``base`` there.

    Raises a ``ConflictError``.
    """
    low, high = sorted((other.version, base))
    commits = log.commits(low + 1, high)
    if len(commits) != high - low:
        raise ConcurrentWriteError(
            f"the log no longer has the commits after version {low}, which this commit read",
            help="read the table again and repeat the write",
            file=log.store.uri,
            version=high,
        )
    for version, meta in commits:
        reason = check_between(other.read, Winner(version, log.parse([(version, meta)])))
        if reason is not None:
            raise reason


def remove_action(add: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """The ``remove`` action that cancels an ``add``, with all fields that change feeds and vacuum need."""
    remove: dict[str, Any] = {
        "path": add["path"],
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": dict(add["partitionValues"] or ()),
        "size": add["size"],
    }
    for name in ("tags", "deletionVector", "baseRowId", "defaultRowCommitVersion"):
        value = add.get(name)
        if value is not None:
            remove[name] = _as_json(name, value)
    return {"remove": remove}
