"""``DeltaVersion``: a version of a Delta table, read to Arrow without Spark.

Code that reads rows is imported when called, so version, schema and properties load none of it
(tests/house/test_laziness.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.common.arguments import checked_methods
from trilake.common.timestamps import TimestampLike, timestamp_ms
from trilake.delta.engine import Engine
from trilake.delta.log.detail import detail, overview, summary
from trilake.delta.log.history import history
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.all_fields import described_schema
from trilake.errors import InvalidArgumentError
from trilake.storage.base import Store
from trilake.table.explanation import Explanation
from trilake.table.table import FilterLike, Table

if TYPE_CHECKING:
    from trilake.delta.scan.scan import Scan
    from trilake.expr import Filter


@checked_methods
class DeltaVersion(Table):
    """The read part of a Delta table at one version; :class:`~trilake.delta.table.ArrowDeltaTable` adds changes.

    ``version`` and ``timestamp`` exclude each other; with neither, the newest version is used.  ``user_metadata``
    is the default ``userMetadata`` of commits made from here.  ``known`` is the :attr:`opened` version of an
    earlier object: it is not read again where the log's files are the same.
    """

    format = "delta"

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        user_metadata: str | None = None,
        known: Snapshot | PendingSnapshot | None = None,
    ) -> None:
        if version is not None and timestamp is not None:
            raise InvalidArgumentError(
                "version and timestamp cannot both be given",
                help="pass one of them",
                condition="DELTA_ONEOF_IN_TIMETRAVEL",
            )
        self.log = DeltaLog(store, engine, user_metadata=user_metadata)
        self.uri = store.uri
        if timestamp is not None:
            version = self.log.version_at(timestamp_ms(timestamp))
        self._opened = self.log.opened(version, cached=known)

    # --- facts
    # -----------------------------------------------------------------------------------------------------------

    @property
    def opened(self) -> Snapshot | PendingSnapshot:
        """The version as far as it was read."""
        return self._opened

    @property
    def snapshot(self) -> Snapshot:
        """The version with all its files; for a very large table they are read at the first call.

        Raises ``CorruptLogError`` where they are damaged.
        """
        if isinstance(self._opened, PendingSnapshot):
            self._opened = self.log.load(self._opened)
        return self._opened

    def snapshot_for(self, filter: Filter | None) -> Snapshot:
        """The version with at least the files that may hold a row for which ``filter`` is true.

        Raises what :attr:`snapshot` raises.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-snapshot-for")
        >>> len(trilake.open("memory://doc-snapshot-for").snapshot_for(None).adds)
        1
        """
        from trilake.delta.scan.narrowed import snapshot_for

        return snapshot_for(self.log, self._opened, filter, lambda _: self.snapshot)

    @property
    def _head(self) -> Head:
        return self._opened

    @property
    def version(self) -> int:
        """The version of this object."""
        return self._head.version

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, with comments; all nullable, since files may lack columns that the table requires."""
        from trilake.delta.scan.scan import read_schema

        return described_schema(read_schema(self._head.schema))

    @property
    def protocol(self) -> Protocol:
        """The protocol action."""
        return self._head.protocol

    @property
    def metadata(self) -> Metadata:
        """The metaData action."""
        return self._head.metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties of this version."""
        return self._head.metadata.configuration

    def _scan(self, columns: Sequence[str] | None, filter: FilterLike | None) -> Scan:
        """The plan of a read; for a large table, only the files that the filter needs are kept in memory."""
        from trilake.delta.scan.scan import parse_table_filter, plan_scan, read_plan

        parsed = parse_table_filter(filter, self._head)
        if isinstance(self._opened, PendingSnapshot):
            read_plan(self._opened, columns, parsed)  # report a missing column before reading a million files
        return plan_scan(self.snapshot_for(parsed), columns, parsed)

    def files(self, filter: FilterLike | None = None) -> pa.Table:
        """One row per data file with its statistics; see :meth:`trilake.table.table.Table.files`."""
        from trilake.delta.scan.statistics import record_counts

        adds = self._scan(None, filter).files
        return pa.table(
            {
                "path": decoded_paths(adds["path"]),
                "partition_values": adds["partitionValues"],
                "size": adds["size"],
                "modification_time": adds["modificationTime"].cast(pa.timestamp("ms", "UTC")),
                "num_records": record_counts(adds),
                "stats": adds["stats"],
                "deletion_vector": adds["deletionVector"],
            }
        )

    # --- rows --------------------------------------------------------------------------------------------------------

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of batches; see :meth:`trilake.table.table.Table.to_batches`."""
        from trilake.delta.scan.read import read_tasks

        scan = self._scan(columns, filter)
        return read_tasks(self.log.store, scan.tasks(), scan.plan)

    def to_reader(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which duckdb, polars and pandas accept."""
        from trilake.delta.scan.read import read_tasks

        scan = self._scan(columns, filter)
        return pa.RecordBatchReader.from_batches(scan.plan.schema, read_tasks(self.log.store, scan.tasks(), scan.plan))

    def to_arrow(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """The rows as one table; see :meth:`trilake.table.table.Table.to_arrow`."""
        return self.to_reader(columns, filter).read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def plain_files(self) -> list[str] | None:
        """Paths of local Parquet files whose rows are exactly the table's; see :meth:`.Table.plain_files`."""
        from trilake.delta.scan.plain_files import plain_files

        return None if isinstance(self._opened, PendingSnapshot) else plain_files(self.snapshot, self.log.store)

    def count(self, filter: FilterLike | None = None) -> int:
        """The number of rows; from statistics alone unless the filter needs rows."""
        from trilake.delta.scan.narrowed import row_count
        from trilake.delta.scan.read import read_tasks
        from trilake.delta.scan.scan import stated_rows
        from trilake.delta.scan.statistics import record_counts

        pending = self._opened if filter is None and isinstance(self._opened, PendingSnapshot) else None
        if pending is not None and (rows := row_count(self.log, pending)) is not None:
            return rows
        scan = self._scan([], filter)
        if scan.plan.filter is None:
            rows = stated_rows(record_counts(scan.files), scan.files["deletionVector"])
            if rows is not None:
                return rows
        return sum(b.num_rows for b in read_tasks(self.log.store, scan.tasks(), scan.plan))

    def changes(
        self,
        start: int | str | datetime,
        end: int | str | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The change data feed of versions ``start`` to ``end``, both included.

        A time (UTC without a zone) as ``start`` is the first version at or after it, as ``end`` the last at or before.

        The rows have three more columns: ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage`` or
        ``delete``), ``_commit_version`` and ``_commit_timestamp``.  Where ``columns`` names some of these, only the
        named columns are returned, in order.

        Raises ``ChangeFeedError`` where the feed was not recorded, ``VersionNotFoundError`` for versions that the log
        does not hold and for times after the newest.

        >>> import pyarrow as pa, trilake
        >>> on = {"delta.enableChangeDataFeed": "true"}
        >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-changes", properties=on)
        >>> trilake.open("memory://doc-changes").changes("2024-05-01")["_change_type"].to_pylist()
        ['insert', 'insert']
        """
        from trilake.delta.scan.changes import changes_table

        return changes_table(self.log, start, end, columns=columns)

    # --- descriptions
    # ----------------------------------------------------------------------------------------------------

    def detail(self) -> pa.Table:
        """One row about this version: format, id, location, partitioning, size, properties and protocol.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-facts")
        >>> trilake.open("memory://doc-facts").detail().select(["format", "numFiles", "minReaderVersion"]).to_pylist()
        [{'format': 'delta', 'numFiles': 1, 'minReaderVersion': 1}]
        """
        return detail(self.log, self.snapshot)

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits, newest first, with who did what and when."""
        return history(self.log, self._head, limit)

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that the application ``app_id`` wrote with ``txn=(app_id, version)``, or ``None``.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-txn", txn=("nightly", 7))
        >>> trilake.open("memory://doc-txn").transaction_version("nightly")
        7
        """
        txn = self._head.state.txns.get(app_id)
        return None if txn is None else int(txn["version"])

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files ``filter`` keeps and which it skips, and why."""
        from trilake.delta.scan.scan import parse_table_filter
        from trilake.delta.scan.skipping import explain_files

        parsed = parse_table_filter(filter, self.snapshot)
        files = explain_files(self.snapshot, parsed)
        return Explanation(None if filter is None else str(filter), files, ("read as Arrow in this process",))

    def __repr__(self) -> str:
        return summary(self._opened if isinstance(self._opened, PendingSnapshot) else self.snapshot)

    def _repr_html_(self) -> str:
        return overview(self.snapshot)
