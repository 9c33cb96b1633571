"""``Transaction``: reads and changes of one table as one commit, for engines built on trilake.

Concurrent commits are checked against its reads; see :mod:`trilake.delta.commit.conflicts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.runtime import Runtime
from trilake.delta.commands.rows.row_changes import moved_on
from trilake.delta.commit.conflicts import PartitionPredicate, ReadSet
from trilake.delta.commit.transaction import CommitPlan, add_action, commit, remove_action
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.features import add_feature
from trilake.delta.protocol.property_values import IsolationLevel, parse_level
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.rules.row_rules import RowRules
from trilake.delta.rules.store_assignment import with_marked
from trilake.delta.scan.scan import parse_table_filter, skip_files
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.table import FilterLike

#: The fields that every ``add`` action has.
_FIELDS = {"path": str, "partitionValues": dict, "size": int, "modificationTime": int, "dataChange": bool}


class Transaction:
    """An optimistic transaction on the newest version of a table (or on ``version``).

    It locks nothing, and nothing is visible before :meth:`commit`, which succeeds only if the transaction could as well
    have run after all concurrent commits.

    Parameters
    ----------
    uri: location of the table, or an open store from :func:`trilake.storage.open_store`.
    version: the base version; the newest by default.
    isolation: ``"Serializable"``, ``"WriteSerializable"`` or ``"SnapshotIsolation"``; the table's own level by default.
    storage_options: credentials, region and endpoint of an object store.
    runtime: clock, ids and waiting; this machine's by default.

    Raises ``TableNotFoundError``, ``VersionNotFoundError`` or ``UnsupportedProtocolError``.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-transaction", mode="overwrite")
    >>> tx = Transaction("memory://doc-transaction")
    >>> old = tx.read("n < 3")
    >>> tx.remove(old)
    >>> tx.write(pa.table({"n": [3, 4]}))
    >>> tx.commit("REWRITE")
    1
    >>> sorted(trilake.open("memory://doc-transaction").to_arrow()["n"].to_pylist())
    [3, 4]

    Existing files, an application's transaction version, a domain's configuration, and table properties:

    >>> from dataclasses import replace
    >>> tx = Transaction("memory://doc-transaction")
    >>> tx.read_transaction("nightly") is None
    True
    >>> tx.set_transaction("nightly", 7)
    >>> tx.set_domain("app.notes", "checked")
    >>> tx.set_metadata(replace(tx.snapshot.metadata, configuration={"owner": "sales"}))
    >>> tx.set_protocol(tx.snapshot.protocol)
    >>> file = tx.snapshot.adds.to_pylist()[0]
    >>> tx.add({**file, "dataChange": False})
    >>> tx.commit("NOTE")
    2
    >>> trilake.open("memory://doc-transaction").transaction_version("nightly")
    7
    """

    def __init__(
        self,
        uri: str | PathLike[str] | Store,
        *,
        version: int | None = None,
        isolation: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        store = uri if isinstance(uri, Store) else open_store(uri, dict(storage_options or {}))
        self.log = DeltaLog(store, standard_engine(runtime=runtime))
        self.runtime = self.log.engine.runtime
        self._version = version
        self._isolation = None if isolation is None else parse_level(isolation)
        self._reads = ReadSet()
        self._actions: list[Mapping[str, Any]] = []
        self._parts: list[WrittenFiles] = []
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self._txns: dict[str, int] = {}
        self._domains: dict[str, str | None] = {}
        self._done = False

    @cached_property
    def snapshot(self) -> Snapshot:
        """The base version."""
        return self.log.snapshot(self._version)

    def read(self, filter: FilterLike | None = None) -> pa.Table:
        """Read the files that may hold a row for which ``filter`` is true: one row per file, with the fields of
        ``add``.

        These files count as read, and so does every file that others add to their partitions.
        """
        if filter is None:
            self._reads = replace(self._reads, whole_table=True)
            return self.snapshot.adds
        condition = parse_table_filter(filter, self.snapshot)
        assert condition is not None
        keep = skip_files(self.snapshot, condition).keep
        files = self.snapshot.adds.filter(pa.array(keep))
        self._reads = replace(
            self._reads,
            predicates=(*self._reads.predicates, PartitionPredicate.of(self.snapshot, condition)),
            files=self._reads.files | set(files["path"].to_pylist()),
        )
        return files

    def read_transaction(self, app_id: str) -> int | None:
        """The transaction version of the application ``app_id``, or ``None``.

        A concurrent change of it is a conflict.
        """
        self._reads = replace(self._reads, app_ids=self._reads.app_ids | {app_id})
        txn = self.snapshot.state.txns.get(app_id)
        return None if txn is None else int(txn["version"])

    def write(self, data: pa.Table | pa.RecordBatchReader) -> None:
        """Write the rows of ``data`` to new files, which the commit adds; the table's rules apply."""
        metadata = self._metadata or self.snapshot.metadata
        source, now = with_marked(from_arrow(data.schema), metadata.schema), self.runtime.clock_ms()
        engine = self.log.engine
        rules = RowRules.of(metadata, source, uri=self.log.store.uri, query=engine.query, now_ms=now)
        plan = FilePlan.of(metadata, self.snapshot.protocol, engine, self.runtime.new_id(), rules=rules)
        batches = data.to_batches() if isinstance(data, pa.Table) else data
        part = write_files(self.log.store, plan, batches, tasks=1)
        self._parts.append(part)
        self._actions += [{"add": a} for a in part.actions]

    def add(self, file: Mapping[str, Any]) -> None:
        """Add an existing file; ``file`` holds the fields of an ``add`` action, as JSON or in the form of :meth:`read`.

        Raises ``InvalidArgumentError`` for missing or invalid fields, and for partition columns that differ from the
        table's.
        """
        action = add_action(file)
        _check_add(action["add"], self._metadata or self.snapshot.metadata)
        self._actions.append(action)

    def remove(self, files: pa.Table | Iterable[str], *, data_change: bool = True) -> None:
        """Remove ``files`` of the snapshot: rows of :meth:`read`, or paths as the log spells them.

        Set ``data_change=False`` if the rows are moved to other files.
        """
        paths = pa.array(files["path"].to_pylist() if isinstance(files, pa.Table) else list(files), pa.string())
        live = self.snapshot.adds["path"]
        unknown = paths.filter(pc.invert(pc.is_in(paths, live.combine_chunks())))
        if len(unknown):
            raise InvalidArgumentError(
                f"version {self.snapshot.version} has no file {unknown[0].as_py()!r}", file=self.log.store.uri
            )
        now = self.runtime.clock_ms()
        for row in self.snapshot.adds.filter(pc.is_in(live, paths)).to_pylist():
            self._actions.append({"remove": {**remove_action(row, now)["remove"], "dataChange": data_change}})
        self._reads = replace(self._reads, removed=self._reads.removed | set(paths.to_pylist()))

    def set_metadata(self, metadata: Metadata) -> None:
        """Change the table's schema or properties: ``metadata`` is the new ``metaData`` action."""
        self._metadata = metadata

    def set_protocol(self, protocol: Protocol) -> None:
        """Set the ``protocol`` action."""
        self._protocol = protocol

    def set_transaction(self, app_id: str, version: int) -> None:
        """Record the transaction ``version`` of the application ``app_id``.

        If a concurrent commit does so, too, that is a conflict.
        """
        self._txns[app_id] = version

    def set_domain(self, domain: str, configuration: str | None) -> None:
        """Set the ``configuration`` of the metadata domain ``domain``; ``None`` removes it.

        The table gets the feature *domainMetadata* if it lacks it.
        """
        self._domains[domain] = configuration

    def commit(
        self,
        operation: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
    ) -> int:
        """Commit after all concurrent commits that do not conflict; return the new version.

        Parameters
        ----------
        operation: the operation in the history, such as ``"WRITE"``.
        parameters, metrics: further entries for the history, by name.
        user_metadata: a string for the history.

        Raises ``InvalidArgumentError`` if an append-only table would lose rows, a ``ConflictError`` that names the
        winner, and ``UnknownOutcomeError`` if the store cannot tell whether the commit landed.  In the first two cases
        nothing is committed, and files that :meth:`write` created are left for vacuum.
        """
        if self._done:
            raise InvalidArgumentError("the transaction has already been committed", help="start a new transaction")
        base = self.snapshot
        base.check_writable()
        if any(_changes_data(a) for a in self._actions if "remove" in a):
            base.check_removable(so=f"{operation} is not possible")
        metadata = moved_on(self._metadata or base.metadata, self._parts)
        protocol = self._protocol
        if any(configuration is not None for configuration in self._domains.values()):
            needed = add_feature(protocol or base.protocol, "domainMetadata")
            protocol = protocol if needed == base.protocol else needed
        plan = CommitPlan(
            operation=operation,
            parameters=parameters or {},
            file_actions=self._actions,
            metadata=metadata if metadata != base.metadata else None,
            protocol=protocol,
            metrics=metrics or {},
            user_metadata=user_metadata,
            read=replace(self._reads, isolation=self._level()),
            txns=self._txns,
            domains=self._domains,
        )
        version = commit(self.log, base, plan)
        self._done = True
        return version

    def _level(self) -> IsolationLevel:
        if self._isolation is not None:
            return self._isolation
        if self._actions and not any(_changes_data(a) for a in self._actions):
            return "SnapshotIsolation"  # rows are only moved, so files that others add do not matter
        return self.snapshot.properties.isolation_level()

    def __repr__(self) -> str:
        state = "committed" if self._done else f"{len(self._actions)} actions"
        return f"<Transaction on {self.log.store.uri} version {self.snapshot.version}, {state}>"


def _check_add(fields: Mapping[str, Any], metadata: Metadata) -> None:
    missing = _FIELDS.keys() - fields.keys()
    if missing:
        raise InvalidArgumentError(f"an add action must have {', '.join(sorted(missing))}")
    wrong = next((name for name, kind in _FIELDS.items() if type(fields[name]) is not kind), None)
    if wrong is not None:
        raise InvalidArgumentError(
            f"{wrong} of an add action must be {_FIELDS[wrong].__name__}, got {type(fields[wrong]).__name__}"
        )
    columns = [metadata.schema.field(c).physical_name for c in metadata.partition_columns]
    values = fields["partitionValues"]
    if values.keys() != set(columns) or not all(v is None or isinstance(v, str) for v in values.values()):
        raise InvalidArgumentError(
            f"partitionValues of {fields['path']} do not match the partition columns: {values}",
            help=f"give a string or None for each partition column: {', '.join(columns) or 'the table has none'}",
        )


def _changes_data(action: Mapping[str, Any]) -> bool:
    return any(bool(fields.get("dataChange", True)) for fields in action.values())
