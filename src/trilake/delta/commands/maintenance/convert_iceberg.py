"""CONVERT TO DELTA of an Iceberg table, in place: its data files stay, and its metadata is not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trilake.common.runtime import Runtime
from trilake.delta.commands.rows.taken_rows import add_with_vector
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.files.file_plan import encode_path
from trilake.delta.metadata.write_schema import new_table
from trilake.delta.protocol.deletion_vectors import store_vectors
from trilake.delta.protocol.features import check_writable
from trilake.errors import InvalidArgumentError
from trilake.storage.base import Store

if TYPE_CHECKING:
    from trilake.delta.iceberg.source import IcebergSource

_MODE, _VECTORS = "delta.columnMapping.mode", "delta.enableDeletionVectors"


def conversion_plan(
    source: IcebergSource, into: Store | None, properties: Mapping[str, str], runtime: Runtime, *, collect_stats: bool
) -> tuple[CommitPlan, int]:
    """The commit that makes a table of an Iceberg snapshot, and its number of rows.

    The columns keep Iceberg's field ids.  Position deletes become deletion vectors, which are written here.
    """
    if properties.get(_MODE, "id").lower() != "id":
        raise InvalidArgumentError(
            f"the columns of an Iceberg table are mapped by id, not by {properties[_MODE]}",
            help=f"convert without {_MODE}",
            condition="DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
        )
    partition_by = source.partition_columns()
    files = source.files()
    times = source.times(files)
    vectors = {} if not any(f.deleted for f in files) else {_VECTORS: "true"}
    protocol, metadata = new_table(
        source.schema(),
        partition_by=partition_by,
        properties={**vectors, **properties, _MODE: "id"},
        provider="parquet",
        runtime=runtime,
    )
    check_writable(protocol, metadata, uri=source.store.uri, version=0)
    adds = {
        f.key: {
            "path": encode_path(f.key) if into is None else f"{source.store.uri.rstrip('/')}/{encode_path(f.key)}",
            "partitionValues": f.partition,
            "size": f.size,
            "modificationTime": times[f.key],
            "dataChange": True,
            "stats": f.stats if collect_stats else f'{{"numRecords":{f.rows}}}',
        }
        for f in files
    }
    deleted = {f.key: f.deleted for f in files if f.deleted}
    stored = store_vectors(into or source.store, list(deleted.values()), runtime.new_id)
    for key, vector in zip(deleted, stored, strict=True):
        adds[key] = add_with_vector(adds[key], vector)
    actions: list[Mapping[str, Any]] = [{"add": add} for add in adds.values()]
    plan = CommitPlan(
        operation="CONVERT",
        parameters={
            "numFiles": len(actions),
            "partitionedBy": partition_by,
            "collectStats": collect_stats,
            "sourceFormat": "iceberg",
        },
        file_actions=actions,
        metadata=metadata,
        protocol=protocol,
        metrics={"numConvertedFiles": len(actions)},
        among_files=into is None,
    )
    return plan, sum(f.rows - len(f.deleted or ()) for f in files)
