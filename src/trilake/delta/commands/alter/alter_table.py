"""``Alter``: change a table's columns, properties, constraints and protocol, one commit per change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trilake.common.arguments import checked_methods
from trilake.delta.commands.alter.metadata_commits import MetadataCommits
from trilake.delta.commit import row_tracking
from trilake.delta.log.clustering import FEATURE as CLUSTERING
from trilake.delta.log.clustering import check_clustering_statistics, clustering_columns
from trilake.delta.log.snapshot import Head
from trilake.delta.metadata import property_changes as alter_properties
from trilake.delta.metadata import schema_changes as alter
from trilake.delta.metadata.column_changes import (
    ColumnChange,
    ColumnsLike,
    TypeLike,
    change_columns,
    identity_column,
    new_columns,
    replace_columns,
    sync_identity,
)
from trilake.delta.metadata.schema_changes import MetadataChange, NewColumn
from trilake.delta.protocol.column_mapping import MODE, parse_mode
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.iceberg import compat_versions
from trilake.delta.protocol.properties import FEATURE, parse_keys, parse_properties
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema_edit import FIRST, PathLike, Position
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import plan_scan
from trilake.errors import InvalidArgumentError


@checked_methods
class Alter(MetadataCommits):
    """Changes one table.  Each method makes one commit and returns its version.

    If nothing would change, nothing is committed and the newest version is returned.

    Parameters
    ----------
    log: the table's log.
    run: runs the rewriting of files that use a dropped feature.
    find_violation: evaluates conditions that DuckDB cannot, for example with Spark; without it they are rejected.
    session: the Spark session of ``find_violation``.
    judge_default: rejects invalid column defaults that only Spark can parse.
    commits_always: whether a change without effect is committed, too, as in delta-spark's SQL.
    defaults_by_feature: whether a default requires that the table already has the feature ``allowColumnDefaults``.

    All methods raise ``TableNotFoundError``, ``UnsupportedProtocolError`` for a table that trilake cannot write,
    ``ConflictError`` if other writers win every attempt, and ``UnknownOutcomeError``.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-alter", properties={"delta.columnMapping.mode": "name"})
    >>> table = trilake.alter("memory://doc-alter")
    >>> table.add_columns({"note": "string"}), table.add_constraint("positive", "n > 0")
    (1, 2)
    >>> table.comment("measured by hand"), table.move_column("note", first=True), table.drop_constraint("positive")
    (3, 4, 5)
    >>> table.set_not_null("n"), table.set_nullable("n"), table.set_default("n", "0"), table.drop_default("n")
    (6, 7, 8, 9)
    >>> table.rename_column("note", "remark"), table.drop_columns("remark")
    (10, 11)
    >>> table.set_properties({"owner": "sales"}), table.unset_properties("owner"), table.cluster_by("n")
    (12, 13, 14)
    >>> table.add_feature("vacuumProtocolCheck"), table.drop_feature("invariants")
    (15, 16)
    >>> trilake.open("memory://doc-alter").schema.names
    ['n']
    """

    def add_columns(self, columns: ColumnsLike, *, first: bool = False, after: str | None = None) -> int:
        """Add columns, which are null in existing rows.

        Parameters
        ----------
        columns: a schema, fields, or types by path: ``{"note": "string", "address.zip": "varchar(10)"}``.
        first, after: the position of the columns, which keep their order; at the end by default.

        Raises ``InvalidArgumentError`` for existing names and for NOT NULL columns.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-add-columns")
        >>> trilake.alter("memory://doc-add-columns").add_columns({"note": "string"}, first=True)
        1
        >>> trilake.open("memory://doc-add-columns").to_arrow().to_pylist()
        [{'note': None, 'n': 1}]
        """
        placed, position = [], _position(first, after)
        for c in new_columns(columns):
            placed.append(NewColumn(c.field, c.parent, position))
            position = Position(c.field.name) if position is not None else None
        return self.add(*placed)

    def add(self, *columns: NewColumn) -> int:
        """Add ``columns``, each at its own position.  Raises ``InvalidArgumentError`` like :meth:`add_columns`.

        >>> import trilake
        >>> from trilake.delta.metadata.schema_changes import NewColumn
        >>> from trilake.delta.protocol.schema import PrimitiveType, StructField
        >>> _ = trilake.write({"n": [1]}, "memory://doc-add")
        >>> trilake.alter("memory://doc-add").add(NewColumn(StructField("note", PrimitiveType("string"))))
        1
        """
        return self._apply(alter.add_columns, columns, new_id=self.runtime.new_id)

    def rename_column(self, path: PathLike, new_name: str) -> int:
        """Rename the column ``path``, nested or not, to ``new_name``; no file is rewritten.

        Raises ``InvalidArgumentError`` without column mapping, for an existing name, and if a constraint or generated
        column uses the column.
        """
        return self._apply(alter.rename_column, path, new_name)

    def drop_columns(self, *paths: PathLike) -> int:
        """Drop the columns at ``paths``, nested or not; no file is rewritten.

        Raises ``InvalidArgumentError`` like :meth:`rename_column`.
        """
        return self._run(lambda h: alter.drop_columns(h.protocol, h.metadata, paths, clustering=clustering_columns(h)))

    def replace_columns(self, columns: ColumnsLike) -> int:
        """Replace the list of columns: existing columns stay, new ones are added, the others are dropped.

        The same holds for fields of structs.  ``columns`` has the forms of :meth:`add_columns`.  Raises
        ``InvalidArgumentError`` if a column cannot be added, dropped or changed.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-replace-columns")
        >>> trilake.alter("memory://doc-replace-columns").replace_columns({"n": "bigint", "note": "string"})
        1
        """
        new_fields = new_columns(columns)
        if any(c.parent for c in new_fields):
            raise InvalidArgumentError(
                "only whole columns can be replaced, got the nested column"
                f" {next(c.field.name for c in new_fields if c.parent)!r}",
                help="give the type of the whole column",
            )
        fields = [c.field for c in new_fields]

        def change(h: Head) -> MetadataChange:
            return replace_columns(
                h.protocol,
                h.metadata,
                fields,
                clustering=clustering_columns(h),
                new_id=self.runtime.new_id,
                version=h.version + 1,
            )

        return self._run(change)

    def move_column(self, path: PathLike, *, first: bool = False, after: str | None = None) -> int:
        """Move the column ``path`` to the ``first`` position, or ``after`` one of its siblings.

        Raises ``InvalidArgumentError`` unless exactly one of the two is given, ``SchemaMismatchError`` for an unknown
        column.
        """
        position = _position(first, after)
        if position is None:
            raise InvalidArgumentError("a new position is required", help="pass first=True, or after='column'")
        return self.change_columns(ColumnChange(path, position=position))

    def change_columns(self, *changes: ColumnChange) -> int:
        """Apply several column ``changes`` in one commit: all of them, or none.

        Raises the errors of the methods for single changes.

        >>> import trilake
        >>> from trilake.delta.metadata.column_changes import ColumnChange
        >>> _ = trilake.write({"a": [1], "b": [2]}, "memory://doc-change-columns")
        >>> trilake.alter("memory://doc-change-columns").change_columns(
        ...     ColumnChange("a", comment="the first"), ColumnChange("b", comment="the second")
        ... )
        1
        """
        now = self.runtime.now()

        def change(h: Head) -> MetadataChange:
            new = change_columns(h.protocol, h.metadata, changes, version=h.version + 1, now=now, judge=self.judge)
            if any(c.position is not None for c in changes):  # the first columns have statistics
                check_clustering_statistics(new.metadata, clustering_columns(h))
            return new

        return self._run(change)

    def change_type(self, path: PathLike, type: TypeLike) -> int:
        """Widen the type of a column, element, key or value; no file is rewritten.

        Parameters
        ----------
        path: the column, such as ``"n"`` or ``"a.element"``.
        type: the new type, such as ``"bigint"``.

        Raises ``InvalidArgumentError`` if the type cannot be widened to that, or without ``delta.enableTypeWidening``.

        >>> import trilake
        >>> trilake.create("memory://doc-change-type", {"n": "int"}, properties={"delta.enableTypeWidening": "true"})
        0
        >>> trilake.alter("memory://doc-change-type").change_type("n", "bigint")
        1
        """
        return self.change_columns(ColumnChange(path, type=type))

    def set_nullable(self, path: PathLike) -> int:
        """Allow nulls in ``path`` (``DROP NOT NULL``).  Raises ``SchemaMismatchError`` for an unknown column."""
        return self._apply(alter.set_nullable, path)

    def set_not_null(self, path: PathLike) -> int:
        """Forbid nulls in the column ``path``.  Raises ``ConstraintViolatedError`` if a row has one."""
        return self._apply(alter.set_not_null, path)

    def comment(self, comment: str | None, path: PathLike | None = None) -> int:
        """Set the comment of the column ``path``, or of the table by default; ``None`` as ``comment`` removes it.

        Raises ``SchemaMismatchError`` for an unknown column.
        """
        if path is None:
            if comment is None:
                return self.unset_properties(alter_properties.COMMENT, if_exists=True)
            return self.set_properties({alter_properties.COMMENT: comment})
        return self._apply(alter.comment_column, path, comment)

    def set_default(self, column: PathLike, expression: str) -> int:
        """Set the default of ``column``, for rows that omit it.

        ``expression`` is SQL that reads no column, such as ``"0"`` or ``"current_date()"``.  Raises ``ExpressionError``
        for an expression that reads columns or does not fit the column.

        >>> import trilake
        >>> _ = trilake.write({"id": [1], "n": [1]}, "memory://doc-default")
        >>> trilake.alter("memory://doc-default").set_default("n", "40 + 2")
        1
        >>> _ = trilake.write({"id": [2]}, "memory://doc-default", mode="append")
        >>> trilake.open("memory://doc-default").to_arrow(filter="id = 2").to_pylist()
        [{'id': 2, 'n': 42}]
        """
        return self._apply(alter.set_default, column, expression, now=self.runtime.now(), judge=self.judge)

    def drop_default(self, column: PathLike) -> int:
        """Remove the default of ``column``.  Raises ``SchemaMismatchError`` for an unknown column."""
        return self._apply(alter.drop_default, column)

    def sync_identity(self, column: PathLike) -> int:
        """Continue the identity column ``column`` after the furthest value in existing rows (``SYNC IDENTITY``).

        Raises ``InvalidArgumentError`` for a column that is not an identity column.

        >>> import trilake
        >>> place = "memory://doc-sync-identity"
        >>> _ = trilake.create(place, {"id": "bigint", "n": "bigint"}, identity=["id"], identity_takes_values=True)
        >>> _ = trilake.write({"id": [100], "n": [1]}, place, mode="append")
        >>> _ = trilake.alter(place).sync_identity("id")
        >>> _ = trilake.write({"n": [2]}, place, mode="append")
        >>> trilake.open(place).to_arrow(["id"], "n = 2")["id"].to_pylist()
        [101]
        """

        def attempt() -> int:
            snapshot = self._snapshot()
            # The mark may be an explicitly inserted value that is not part of the sequence.
            unmarked = replace(identity_column(snapshot.schema, column), mark=None)
            scan = plan_scan(snapshot, [unmarked.name])
            reached = None
            for batch in read_tasks(self.log.store, scan.tasks(), scan.plan):
                reached = unmarked.further(reached, unmarked.reach(batch.column(0)))
            change = sync_identity(snapshot.protocol, snapshot.metadata, column, reached)
            if not change.changes(snapshot.protocol, snapshot.metadata):
                return snapshot.version
            return self._commit(snapshot, change, whole=True)

        return self._again(attempt)

    def cluster_by(self, *columns: PathLike) -> int:
        """Set the clustering ``columns``; without columns, end clustering.

        Raises ``InvalidArgumentError`` for a partitioned table, and for columns that cannot be clustering columns.
        """

        def change(h: Head) -> MetadataChange:
            return alter_properties.cluster_by(h.protocol, h.metadata, columns, before=clustering_columns(h))

        def attempt() -> int:
            head = self._head()
            ends_nothing = not columns and not has_feature(head.protocol, CLUSTERING)
            return head.version if ends_nothing else self._once(change, head)

        return self._again(attempt)

    def set_properties(self, properties: Mapping[str, object]) -> int:
        """Set table ``properties``, and enable the table features that they need.

        ``delta.enableRowTracking`` first assigns row ids to existing files, in up to two more commits;
        ``delta.columnMapping.mode=none`` rewrites files whose physical column names differ.

        Raises ``UnknownOptionError`` for an unknown ``delta.`` key, and ``InvalidArgumentError`` for an invalid value.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-set-properties")
        >>> trilake.alter("memory://doc-set-properties").set_properties({"delta.appendOnly": "true"})
        1
        >>> dict(trilake.open("memory://doc-set-properties").properties)
        {'delta.appendOnly': 'true'}
        """

        def change(h: Head) -> MetadataChange:
            return self._with_properties(h, properties)

        def attempt() -> int:
            head = self._head()
            mode = parse_properties(properties).values.get(MODE)
            if mode is not None and parse_mode(mode) == "none" and head.metadata.column_mapping_mode != "none":
                version = self._unmapped({MODE: "none"})
                if len(properties) == 1:
                    return version
                head = self._head()
            configuration, key = change(head).metadata.configuration, row_tracking.ENABLED
            if set(compat_versions(configuration)) - set(compat_versions(head.metadata.configuration)):
                return self._iceberg(change)
            if is_on(configuration, key) and not head.properties.is_on(key):
                return self._tracking(change)
            return self._once(change, head)

        return self._again(attempt)

    def unset_properties(self, *keys: str, if_exists: bool = False) -> int:
        """Remove the table properties ``keys``; ``if_exists`` ignores keys that are not set.

        Raises ``InvalidArgumentError`` for a key that is not set.
        """

        def change(h: Head, unset: Sequence[str]) -> MetadataChange:
            return alter_properties.unset_properties(
                h.protocol, h.metadata, unset, new_id=self.runtime.new_id, if_exists=if_exists
            )

        def attempt() -> int:
            head = self._head()
            if MODE in parse_keys(keys) and head.metadata.column_mapping_mode != "none":
                version = self._unmapped({})
                other_keys = [k for k in parse_keys(keys) if k != MODE]
                return version if not other_keys else self._once(lambda h: change(h, other_keys))
            return self._once(lambda h: change(h, keys), head)

        return self._again(attempt)

    def add_constraint(self, name: str, expression: str) -> int:
        """Add a CHECK constraint with a ``name``.

        ``expression`` is a condition over the table's columns as SQL, which every row must satisfy.  Raises
        ``ConstraintViolatedError`` with the values of the first row that violates it, ``InvalidArgumentError`` for an
        existing name, ``ExpressionError`` for an expression that is not a condition over the table's columns.
        """
        return self._apply(alter_properties.add_constraint, name, expression, now=self.runtime.now())

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> int:
        """Remove the CHECK constraint ``name``; ``if_exists`` ignores an unknown name.

        Raises ``InvalidArgumentError`` for an unknown name.
        """
        return self._apply(alter_properties.drop_constraint, name, if_exists=if_exists)

    def add_feature(self, name: str) -> int:
        """Add the table feature ``name`` and its dependencies.

        Raises ``UnsupportedProtocolError`` for an unknown name.
        """
        return self.set_properties({f"{FEATURE}{name}": "supported"})

    def upgrade_protocol(self, reader: int, writer: int) -> int:
        """Raise the protocol's versions to ``reader`` and ``writer``.

        Raises ``InvalidArgumentError`` for versions that do not exist.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-upgrade")
        >>> trilake.alter("memory://doc-upgrade").upgrade_protocol(2, 5)
        1
        >>> trilake.open("memory://doc-upgrade").protocol.min_writer_version
        5
        """
        return self._apply(alter_properties.raise_versions, reader, writer)

    def drop_feature(self, name: str, *, truncate_history: bool = False, protect_history: bool = False) -> int:
        """Drop the table feature ``name``.

        A reader feature is first disabled, in a separate commit, and dropped once no readable version needs it;
        ``truncate_history`` removes history older than a day for that.  If only older versions need it,
        ``protect_history`` drops it at once: the table gets the feature *checkpointProtection*, which keeps the
        checkpoint from which readers start for as long as those versions.  Raises ``FeatureInUseError``, which says
        what to do next.
        """
        return self._again(lambda: self._drop(name, truncate_history, protect_history and not truncate_history))


def _position(first: bool, after: str | None) -> Position | None:
    if first and after is not None:
        raise InvalidArgumentError("first and after cannot both be given")
    return FIRST if first else None if after is None else Position(after)
