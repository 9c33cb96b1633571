"""CLONE: a new table, or a new version of one, with the rows of another table at some version.

A shallow clone references the source's files and depends on them forever.  A deep clone copies them.  Properties,
schema, constraints, partitioning and clustering are cloned; history and row ids are not.  An existing target keeps its
history, id and protocol features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trilake.common.display import Displayed
from trilake.common.runtime import Runtime
from trilake.delta.commands.maintenance.carried_files import total_size, with_marks_of
from trilake.delta.commands.maintenance.clone_files import (
    DeepPlan,
    copy_all,
    not_staying,
    plan_copies,
    shallow_adds,
    unshared,
)
from trilake.delta.commands.maintenance.convert import convert_to_delta
from trilake.delta.commands.maintenance.restore import PROTECTED_BEFORE
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.symlink_manifest import format_path
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.engine import Engine
from trilake.delta.files.place import check_place
from trilake.delta.log.clustering import DOMAIN
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.metadata.property_changes import prepared
from trilake.delta.protocol import in_commit_timestamps
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.features import check_writable, features_of, upgrade_protocol, upgraded, with_features
from trilake.delta.protocol.properties import ParsedProperties, parse_properties
from trilake.delta.protocol.schema import StructField
from trilake.errors import ConflictError, InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore
from trilake.storage.ownership import discard


@dataclass(frozen=True)
class CloneResult(Displayed):
    """What a clone did; sizes in bytes.

    ``version`` is the version of the target, ``source_version`` that of the source.  Files that a repeated deep clone
    reuses count as neither copied nor removed.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-clone-result")
    >>> done = trilake.open("memory://doc-clone-result").clone("memory://doc-clone-result-2")
    >>> done.version, done.num_copied_files
    (0, 1)
    """

    version: int
    source_version: int
    source_table_size: int
    source_num_of_files: int
    num_removed_files: int
    num_copied_files: int
    removed_files_size: int
    copied_files_size: int


def clone(
    source: Snapshot,
    from_log: DeltaLog,
    into: DeltaLog,
    *,
    shallow: bool = False,
    replace_target: bool = False,
    properties: Mapping[str, str] | None = None,
    parquet: str | None = None,
    name: str | None = None,
    runtime: Runtime | None = None,
    run: Runner = run_here,
) -> CloneResult:
    """Make the table ``into`` a copy of ``source``.

    Parameters
    ----------
    source: the version to clone.
    from_log: its log.
    into: the log of the target.
    shallow: reference the source's files instead of copying them.
    replace_target: replace the rows and schema of an existing table; its history stays.
    properties: table properties that add to or override the source's.
    parquet: the folder of Parquet files that the source was converted from, if it is not a Delta table.
    name: the source's catalog name, for the history.
    runtime: clock and ids.
    run: runs the copying.

    Raises ``TableExistsError`` if the target exists and may not be replaced, ``MissingFileError`` if files of the
    source are gone, ``InvalidArgumentError`` for invalid properties and for a target inside the source or vice versa,
    ``ConflictError`` if another writer has changed the target.

    >>> import pyarrow as pa, trilake
    >>> from trilake.delta.standard import standard_engine
    >>> from trilake.storage import open_store
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-clone", mode="overwrite")
    >>> log = DeltaLog(open_store("memory://doc-clone"), standard_engine())
    >>> copy = DeltaLog(open_store("memory://doc-clone-copy"), standard_engine())
    >>> clone(log.snapshot(), log, copy, replace_target=True).num_copied_files
    1
    >>> trilake.open("memory://doc-clone-copy").count()
    2
    """
    runtime = runtime or into.engine.runtime
    _check_places(parquet or source.uri, into.store.uri)
    base = _target(into, replace_target)
    if base is None:
        check_place(into.store, now_ms=runtime.clock_ms())
    effects = parse_properties(properties or {})
    metadata = cloned_metadata(source.metadata, None if base is None else base.metadata, effects, runtime)
    protocol = _protocol(source.protocol, base, metadata, effects)
    version = 0 if base is None else base.version + 1
    check_writable(protocol, metadata, uri=into.store.uri, version=version)
    if shallow:
        deep = DeepPlan((), tuple(shallow_adds(source)), frozenset())
    else:
        # Files without row ids cannot stay if the table starts to require them.
        stays = base is not None and row_tracking.supported(protocol) == row_tracking.supported(base.protocol)
        deep = plan_copies(source, into.store, base if stays else None, runtime.new_id)
        copy_all(from_log.store, into.store, deep.copies, run)
    result = CloneResult(
        version=version,
        source_version=source.version,
        source_table_size=total_size(source.adds),
        source_num_of_files=source.adds.num_rows,
        num_removed_files=0 if base is None else not_staying(base, deep.staying).num_rows,
        num_copied_files=len(deep.sizes),
        removed_files_size=0 if base is None else total_size(not_staying(base, deep.staying)),
        copied_files_size=sum(deep.sizes),
    )
    place = f"delta.`{format_path(source.uri)}`" if parquet is None else f"parquet.`{parquet}`"
    plan = _plan(source, name or place, base, metadata, protocol, deep, result, runtime=runtime)
    try:
        return replace(result, version=commit(into, base, plan, runtime).version)
    except (ConflictError, TableExistsError, InvalidArgumentError) as e:
        discard(into.store, unshared(deep.copies))
        if not (replace_target and isinstance(e, TableExistsError)):
            raise
    # Another writer created a table here: replace it.
    return clone(
        source,
        from_log,
        into,
        shallow=shallow,
        replace_target=True,
        properties=properties,
        parquet=parquet,
        runtime=runtime,
        run=run,
    )


def _check_places(source: str, target: str) -> None:
    a, b = source.rstrip("/") + "/", target.rstrip("/") + "/"
    if a.startswith(b) or b.startswith(a):
        raise InvalidArgumentError(
            f"a table cannot be cloned into {'itself' if a == b else 'a folder inside the other table'}",
            help="choose another location: vacuum of one table would delete files of the other",
            source=source,
            target=target,
            condition="DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE",
        )


def _target(into: DeltaLog, replace_target: bool) -> Snapshot | None:
    try:
        base = into.snapshot()
    except TableNotFoundError:
        return None
    if not replace_target:
        raise TableExistsError(
            "a Delta table already exists at this location",
            help="pass replace=True to replace the table; its history is kept",
            file=into.store.uri,
            version=base.version,
            condition="DELTA_UNSUPPORTED_NON_EMPTY_CLONE",
        )
    check_writable(base.protocol, base.metadata, uri=base.uri, version=base.version)
    if base.adds.num_rows and base.properties.is_on("delta.appendOnly"):
        raise InvalidArgumentError(
            "the target is append-only (delta.appendOnly=true), so it cannot be replaced",
            help="set delta.appendOnly to false first",
            file=base.uri,
            condition="DELTA_CANNOT_MODIFY_APPEND_ONLY",
        )
    return base


def cloned_metadata(source: Metadata, base: Metadata | None, parsed: ParsedProperties, runtime: Runtime) -> Metadata:
    """The target's metadata: the source's, except for what the target keeps, such as its id and high-water marks.

    Raises ``InvalidArgumentError`` if column mapping would change.
    """
    # The row ids in these columns belong to the source, so the target must not read them.
    ids = {row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN}
    times = {in_commit_timestamps.SINCE_VERSION, in_commit_timestamps.SINCE_TIME}
    not_cloned = {PROTECTED_BEFORE, *ids, *times}
    configuration = {k: v for k, v in source.configuration.items() if k not in not_cloned} | dict(parsed.values)
    metadata = replace(
        source,
        id=runtime.new_id() if base is None else base.id,
        name=None if base is None else base.name,
        description=source.description if base is None else base.description,
        created_time=runtime.clock_ms() if base is None else base.created_time,
        configuration=configuration,
    )
    if base is not None:
        metadata = replace(metadata, schema_string=with_marks_of(source.schema, base.schema).json())
        both = in_commit_timestamps.enabled(base) and in_commit_timestamps.enabled(metadata)
        own_properties = {k: v for k, v in base.configuration.items() if k in not_cloned and (both or k not in times)}
        metadata = replace(metadata, configuration={**configuration, **own_properties})
    for other in (source, *([base] if base is not None else [])):
        if other.column_mapping_mode != metadata.column_mapping_mode:
            raise InvalidArgumentError(
                f"a clone cannot change the column mapping mode from {other.column_mapping_mode} to"
                f" {metadata.column_mapping_mode}",
                help="change the mode separately, or clone to another location",
                condition="DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
            )
    return prepared(source, metadata, new_id=runtime.new_id)


def _protocol(source: Protocol, base: Snapshot | None, metadata: Metadata, parsed: ParsedProperties) -> Protocol:
    protocol = source
    if base is not None:
        protocol = with_features(base.protocol, features_of(source) - features_of(base.protocol))
    protocol = upgraded(protocol, metadata, parsed.features)
    if parsed.reader is not None or parsed.writer is not None:
        protocol = upgrade_protocol(protocol, parsed.reader or 1, parsed.writer or 2)
    return protocol


def _plan(
    source: Snapshot,
    source_uri: str,
    base: Snapshot | None,
    metadata: Metadata,
    protocol: Protocol,
    deep: DeepPlan,
    result: CloneResult,
    *,
    runtime: Runtime,
) -> CommitPlan:
    now = runtime.clock_ms()
    replaced = [] if base is None else not_staying(base, deep.staying).to_pylist()
    # There are no reads to conflict: if another writer creates the table, it wins.
    read = ReadSet()
    if base is not None:
        old_paths = frozenset(row["path"] for row in replaced)
        read = ReadSet(whole_table=True, removed=old_paths, isolation="Serializable", changes_metadata=True)
    return CommitPlan(
        operation="CLONE",
        parameters={
            "source": source_uri,
            "sourceVersion": source.version,
        },
        file_actions=[*(remove_action(row, now) for row in replaced), *deep.adds],
        metadata=metadata if base is None or metadata != base.metadata else None,
        protocol=protocol if base is None or protocol != base.protocol else None,
        metrics={
            "sourceTableSize": result.source_table_size,
            "sourceNumOfFiles": result.source_num_of_files,
            "numRemovedFiles": result.num_removed_files,
            "numCopiedFiles": result.num_copied_files,
            "removedFilesSize": result.removed_files_size,
            "copiedFilesSize": result.copied_files_size,
        },
        read=read,
        domains=_domains(source, base),
    )


def _domains(source: Snapshot, base: Snapshot | None) -> dict[str, str | None]:
    """The source's clustering columns; ``None`` removes those that only the target has."""
    clustering: Any = source.state.domains.get(DOMAIN)
    if clustering is not None and not clustering.get("removed"):
        return {DOMAIN: str(clustering.get("configuration") or "")}
    return {DOMAIN: None} if base is not None and DOMAIN in base.state.domains else {}


# --- Parquet files as a temporary Delta table that a clone can read ---------------------------------------------------


def snapshot_of_parquet(
    store: Store,
    engine: Engine,
    *,
    partition_by: Sequence[str | StructField] = (),
    timezone: str = "UTC",
    run: Runner = run_here,
) -> Snapshot:
    """A table, with its log in memory, of the files below the root of ``store``.

    ``partition_by`` are the partition columns in the order of the folders.  Raises what
    :func:`~trilake.delta.commands.maintenance.convert.convert_to_delta` raises.
    """
    log = MemoryStore()
    convert_to_delta(store, engine, partition_by=partition_by, into=log, timezone=timezone, run=run)
    return DeltaLog(log, engine).snapshot()


def no_versions(name: Sequence[str]) -> InvalidArgumentError:
    """The error for a clone of Parquet files with ``VERSION AS OF``."""
    return InvalidArgumentError(
        f"{'.'.join(name)} holds Parquet files, which have no versions",
        help="leave the version out",
        condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
    )
