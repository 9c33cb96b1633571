"""``create``, ``alter``, ``convert_to_delta``, ``sync_iceberg``: create, change and convert Delta tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.common.arguments import checked, column_names
from trilake.common.extras import load
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import TableNotFoundError
from trilake.storage import open_store
from trilake.storage.options import allowing_foreign

if TYPE_CHECKING:
    from trilake.delta.commands.alter.alter_table import Alter
    from trilake.delta.commands.maintenance.convert import ConvertResult
    from trilake.delta.commands.write.create import CreateMode
    from trilake.delta.metadata.column_changes import ColumnsLike, TypeLike


@checked
def create(
    uri: str | PathLike[str],
    columns: ColumnsLike,
    *,
    mode: CreateMode = "create",
    partition_by: str | Sequence[str] | None = None,
    cluster_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    generated: Mapping[str, str] | None = None,
    identity: Mapping[str, tuple[int, int]] | Sequence[str] | None = None,
    identity_takes_values: bool = False,
    defaults: Mapping[str, str] | None = None,
    data_format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_foreign_files: bool = False,
    user_metadata: str | None = None,
) -> int:
    """Create a Delta table without rows, in one commit; return its version.

    Parameters
    ----------
    uri: location of the table.
    columns: a schema, fields, or types by name: ``{"id": "bigint", "address": "struct<zip: string>"}``.  Metadata of
        Arrow and deltalake fields, such as ``delta.generationExpression`` and ``delta.identity.start``, is applied.
    mode: for an existing table, ``"create"`` raises, ``"create_if_not_exists"`` does nothing, and ``"replace"`` and
        ``"create_or_replace"`` replace it; ``"replace"`` requires one.
    partition_by, cluster_by: partition columns, or clustering columns.
    properties: table properties.
    comment: a description of the table.
    generated: SQL expressions over other columns, by the name of the generated column.
    identity: ``bigint`` columns whose values are generated: a name, names, or start and step by name.
    identity_takes_values: whether rows may have values for identity columns.
    defaults: SQL expressions for omitted columns, by name.
    data_format: format of the data files: ``"parquet"`` (the default), ``"lance"`` or ``"trevni"``.
    storage_options: credentials, region and endpoint of an object store.
    allow_foreign_files: create the table in a folder with other files, which its readers do not see.
    user_metadata: a string for the history.

    Raises ``TableExistsError``, ``TableNotFoundError``, ``InvalidArgumentError`` or ``ExpressionError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.create(
    ...     "memory://doc-create-table",
    ...     {"id": "bigint", "at": "timestamp", "day": "date"},
    ...     identity=["id"],
    ...     generated={"day": "CAST(at AS DATE)"},
    ...     partition_by="day",
    ... )
    0
    >>> rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    >>> _ = trilake.write(rows, "memory://doc-create-table", mode="append")
    >>> trilake.open("memory://doc-create-table").to_arrow(["id", "day"]).to_pylist()
    [{'id': 1, 'day': datetime.date(1970, 1, 1)}]
    """
    from trilake.delta.commands.write.create import TableDescription, create_table, with_rules

    schema = with_rules(columns, generated or {}, identity or (), defaults or {}, explicit=identity_takes_values)
    partitions, clustering = column_names(partition_by) or (), column_names(cluster_by) or ()
    description = TableDescription(
        schema, partitions, dict(properties or {}), comment, clustering, data_format=data_format
    )
    store = open_store(uri, allowing_foreign(storage_options, allow_foreign_files))
    log = DeltaLog(store, standard_engine(), user_metadata=user_metadata)
    return create_table(log, description, mode=mode).version


@checked
def alter(
    uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None, user_metadata: str | None = None
) -> Alter:
    """Change the columns, constraints, properties and features of a Delta table: each method is one commit.

    Parameters
    ----------
    uri: location of the table.
    storage_options: credentials, region and endpoint of an object store.
    user_metadata: a string for the history, of each change.

    Raises ``TableNotFoundError`` if there is no Delta table.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1]}), "memory://doc-api-alter", mode="overwrite")
    >>> trilake.alter("memory://doc-api-alter").add_constraint("positive", "n > 0")
    1
    >>> trilake.write(pa.table({"n": [-1]}), "memory://doc-api-alter", mode="append")
    Traceback (most recent call last):
    trilake.errors.ConstraintViolatedError: ... CHECK constraint positive (n > 0) violated by row with values: n = -1...
    """
    from trilake.delta.commands.alter.alter_table import Alter

    return Alter(_existing(uri, storage_options, user_metadata))


def _existing(
    uri: str | PathLike[str], storage_options: Mapping[str, str] | None, user_metadata: str | None = None
) -> DeltaLog:
    log = DeltaLog(open_store(uri, dict(storage_options or {})), standard_engine(), user_metadata=user_metadata)
    if not log.exists():
        help = "check the path, or create a table there with trilake.create"
        raise TableNotFoundError("no Delta table found", help=help, file=log.store.uri)
    return log


@checked
def convert_to_delta(
    uri: str | PathLike[str],
    partition_by: str | Sequence[str] | Mapping[str, TypeLike] | pa.Schema | None = None,
    *,
    target: str | PathLike[str] | None = None,
    collect_stats: bool = True,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    user_metadata: str | None = None,
) -> ConvertResult:
    """Convert a folder of Parquet files, or an Iceberg table, to a Delta table in place; no file is rewritten.

    Parameters
    ----------
    uri: the folder.
    partition_by: partition columns in the order of the folders: names, whose types are inferred, types by name, a
        schema, or SQL such as ``"day date, n int"``.  Inferred by default.
    target: another location for the log: a shallow clone, which refers to the files where they are.
    collect_stats: whether the statistics of the files are added to the log.
    properties: table properties.
    storage_options: credentials, region and endpoint of an object store.
    user_metadata: a string for the history.

    For an Iceberg table (versions 1 and 2; needs ``trilake[iceberg]``), the newest metadata file in ``metadata/``
    lists the live files.  Columns are mapped by their field ids, identity transforms become partition columns, and
    position deletes become deletion vectors.

    An existing Delta table is not changed.  Raises ``TableNotFoundError`` if there is no file, ``CorruptFileError``
    for a file that is not Parquet, ``SchemaMismatchError`` for files with different schemas, and
    ``InvalidArgumentError`` for folders that contradict each other, or Iceberg features that Delta lacks, such as
    equality deletes.

    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq, trilake
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"n": [1, 2]}), f"{folder}/a.parquet")
    ...     done = trilake.convert_to_delta(folder)
    ...     rows = trilake.open(folder).to_arrow()
    >>> rows["n"].to_pylist()
    [1, 2]
    """
    from trilake.delta.commands.maintenance import convert
    from trilake.delta.commands.maintenance.convert_partitions import given_columns

    options = dict(storage_options or {})
    return convert.convert_to_delta(
        open_store(uri, options),
        standard_engine(),
        partition_by=given_columns(partition_by),
        into=None if target is None else open_store(target, options),
        collect_stats=collect_stats,
        properties=properties,
        user_metadata=user_metadata,
    )


@checked
def sync_iceberg(
    uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None, rebuild: bool = False
) -> int:
    """Update the Iceberg metadata of a Delta table, for example after commits of other writers.

    Parameters
    ----------
    uri: a table whose property ``delta.universalFormat.enabledFormats`` is ``iceberg``.
    storage_options: credentials, region and endpoint of an object store.
    rebuild: write the manifests again from the log, if :func:`trilake.verify` finds that they are damaged or differ.

    Returns the Delta version of the newest Iceberg snapshot.  Raises ``TableNotFoundError`` if there is no Delta
    table, ``InvalidArgumentError`` if its properties do not enable Iceberg, or for files and types that Iceberg v2
    lacks, and ``MissingDependencyError`` without ``trilake[iceberg]``.

    >>> import pyarrow as pa, tempfile, trilake
    >>> uniform = {"delta.enableIcebergCompatV2": "true", "delta.universalFormat.enabledFormats": "iceberg"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = trilake.write(pa.table({"n": [1, 2]}), folder, properties=uniform)
    ...     trilake.sync_iceberg(folder)
    0
    """
    sync = load("trilake.delta.iceberg.sync", "Iceberg metadata of Delta tables").sync
    count: int = sync(_existing(uri, storage_options), rebuild=rebuild)
    return count
