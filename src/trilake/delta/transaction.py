"""A commit: from a read version and a set of actions to the next version of the table.

The life of a transaction::

    begin(snapshot) --> actions --> try N+1 --won--> committed --> post-commit: checkpoint every 10 versions
                                      |  ^
                                 lost |  | no conflict: try the version after the winner
                                      v  |
                                    check every winner --conflict--> ConflictError, nothing committed
                                      |
                         reply lost --+--> read N+1: our token there? committed : (absent or foreign) decide as above

The one dangerous step is ``put_if_absent`` of the commit file.  A reply that got lost is never taken for a failure: the
commit carries a token, and the log itself says whose commit it holds.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

import trilake
from trilake.delta.actions import Metadata, Protocol
from trilake.delta.checkpoint_writer import write_checkpoint
from trilake.delta.conflicts import ReadSet, Winner, check
from trilake.delta.log import DeltaLog, Head, Snapshot
from trilake.delta.runtime import Runtime
from trilake.delta.segment import commit_key
from trilake.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TableExistsError,
    TrilakeError,
    UnknownOutcomeError,
)

_log = logging.getLogger("trilake.delta")

#: Attempts before a transaction gives up against ever new winners.
MAX_ATTEMPTS = 1000


@dataclass(frozen=True)
class CommitPlan:
    """Everything a commit says, apart from its version.

    ``file_actions`` are whole action objects, one key each, such as ``{"add": {...}}``.
    """

    operation: str
    parameters: Mapping[str, Any]
    file_actions: Sequence[Mapping[str, Any]]
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    user_metadata: str | None = None
    read: ReadSet = field(default_factory=ReadSet)


@dataclass(frozen=True)
class Committed:
    """A commit that is in the log: its version, and the snapshot it made where that was computed."""

    version: int
    snapshot: Snapshot | None = None


def commit(log: DeltaLog, base: Head | None, plan: CommitPlan, runtime: Runtime | None = None) -> Committed:
    """Commit ``plan`` on top of ``base`` (``None`` to create the table), retrying past winners it does not conflict
    with.

    Raises a ``ConflictError`` where a winner and this commit exclude each other, ``TableExistsError`` where a table to
    be created is there by now, ``UnknownOutcomeError`` where the store cannot tell whether the commit landed.
    """
    runtime = runtime or Runtime()
    token = runtime.new_id()
    version = 0 if base is None else base.version + 1
    for attempt in range(MAX_ATTEMPTS):
        data = _content(base, plan, token, version, runtime)
        if _try_put(log, version, data, token):
            return _after_commit(log, base, version, runtime)
        if base is None:
            raise TableExistsError("another writer created the table meanwhile", file=log.store.uri, version=0)
        version = _past_winners(log, plan.read, version)
        if attempt > 3:
            runtime.sleep(min(0.01 * attempt, 0.5))
    raise ConflictError(
        f"{MAX_ATTEMPTS} attempts lost against other writers",
        help="try again when fewer writers commit to this table",
        file=log.store.uri,
        version=version,
    )


def _content(base: Head | None, plan: CommitPlan, token: str, version: int, runtime: Runtime) -> bytes:
    info: dict[str, Any] = {
        "timestamp": runtime.clock_ms(),
        "userName": _user(),
        "operation": plan.operation,
        # As other writers do: every parameter is a text, lists as JSON.
        "operationParameters": {
            k: v if isinstance(v, str) else orjson.dumps(v).decode() for k, v in plan.parameters.items()
        },
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": plan.read.blind and all("add" in a for a in plan.file_actions),
        "operationMetrics": {k: str(v) for k, v in plan.metrics.items()},
        "engineInfo": f"trilake/{trilake.__version__}",
        "txnId": token,
    }
    if base is not None:
        info["readVersion"] = base.version
    if plan.user_metadata is not None:
        info["userMetadata"] = plan.user_metadata
    lines: list[Mapping[str, Any]] = [{"commitInfo": info}]
    if plan.protocol is not None:
        lines.append({"protocol": plan.protocol.to_json()})
    if plan.metadata is not None:
        lines.append({"metaData": plan.metadata.to_json()})
    return b"\n".join(orjson.dumps(a) for a in (*lines, *plan.file_actions)) + b"\n"


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name for this user id, as in many containers
        return None


def _try_put(log: DeltaLog, version: int, data: bytes, token: str) -> bool:
    """Whether the commit is in the log under ``version``."""
    key = commit_key(version)
    try:
        log.store.put_if_absent(key, data)
        return True
    except (ObjectExistsError, UnknownOutcomeError) as e:
        # Even an object that exists may be ours: a retried request meets its own first attempt.  The token tells.
        try:
            return _token_at(log, version) == token
        except StorageError as unread:
            # Absent now does not mean that a request under way cannot land later, so this is no failure to retry; and
            # a log that cannot be read does not say that nothing was changed.
            absent = isinstance(unread, ObjectNotFoundError)
            raise UnknownOutcomeError(
                f"the reply to the commit of version {version} was lost and the commit "
                + ("is not there (yet)" if absent else f"cannot be looked up: {unread.message}"),
                file=f"{log.store.uri}/{key}",
                version=version,
            ) from e


def _token_at(log: DeltaLog, version: int) -> str | None:
    token = log.commit_info(version).get("txnId")
    return token if isinstance(token, str) else None


def _past_winners(log: DeltaLog, read: ReadSet, version: int) -> int:
    """Check every winner from ``version`` on; the first version after them."""
    commits = log.commits(version)
    batch_of = {v: log.parse([(v, c)]) for v, c in commits}
    for v in sorted(batch_of):
        conflict = check(read, Winner(v, batch_of[v]))
        if conflict is not None:
            raise conflict
    return max(batch_of, default=version - 1) + 1


def _after_commit(log: DeltaLog, base: Head | None, version: int, runtime: Runtime) -> Committed:
    """What follows a commit and cannot undo it: a checkpoint when one is due."""
    try:
        if base is None:
            return Committed(version)
        interval = int(base.property("delta.checkpointInterval", "10"))
        # Late already when this commit began: the writer whose turn it was has failed.
        late = interval > 0 and base.version - (base.segment.checkpoint_version or 0) >= interval
        if interval <= 0 or (version % interval and not late):
            return Committed(version)
        current = log.update(base) if isinstance(base, Snapshot) else log.snapshot()
        if current.version > version:
            current = log.snapshot(version)
        write_checkpoint(log, current, runtime)
        return Committed(version, current)
    except (TrilakeError, pa.ArrowException, OSError, ValueError) as e:
        # The commit stands; the next one will try the checkpoint again.
        _log.warning("version %d of %s is committed, but its checkpoint failed: %s", version, log.store.uri, e)
        return Committed(version)


def remove_action(add: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """The ``remove`` that cancels an ``add``, with all that readers of the change feed and vacuum want to know."""
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
            if name == "deletionVector":
                value = {k: v for k, v in value.items() if v is not None}
            remove[name] = dict(value) if name == "tags" else value
    return {"remove": remove}
