"""``create``, ``alter``, ``convert_to_delta``, ``sync_iceberg``: what a Delta table is, apart from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.common.arguments import checked
from trilake.common.extras import missing
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import TableNotFoundError
from trilake.storage import open_store
from trilake.storage.options import allowing_foreign

if TYPE_CHECKING:
    from trilake.delta.commands.alter.alter_table import Alter
    from trilake.delta.commands.maintenance.convert import ConvertResult
    from trilake.delta.commands.write.create import CreateMode
    from trilake.delta.metadata.column_definitions import ColumnsLike, TypeLike


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
) -> int:
    """Make a Delta table without rows, as one commit; the version that there is afterwards.

    Parameters
    ----------
    uri: where the table is to be.
    columns: a schema, fields, or types by name: ``{"id": "bigint", "address": "struct<zip: string>"}``. What fields of
        Arrow and of deltalake have as ``delta.generationExpression``, ``delta.identity.start`` and so on in their
        metadata makes such columns, too.
    mode: ``"create"`` refuses where a table is there, ``"create_if_not_exists"`` leaves it as it is, ``"replace"``
        needs one and takes its rows away, ``"create_or_replace"`` does either.
    partition_by, cluster_by: columns that files are grouped by, or rows are kept near each other by.
    properties: table properties.
    comment: what the table is, for people.
    generated: SQL expressions over other columns, by the name of the column that they compute.
    identity: columns of type ``bigint`` whose values the table makes up: a name, names, or start and step by name.
    identity_takes_values: whether rows may come with values of identity columns.
    defaults: SQL expressions of values for rows that leave a column out.
    data_format: format of the data files, ``"parquet"`` by default, ``"lance"`` or ``"trevni"``.
    storage_options: credentials, region and endpoint of an object store.
    allow_foreign_files: make it although files lie in the folder that are of no table; its readers do not see them.

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
    description = TableDescription(
        schema,
        column_names(partition_by) or (),
        dict(properties or {}),
        comment,
        column_names(cluster_by) or (),
        data_format=data_format,
    )
    return create_table(
        DeltaLog(open_store(uri, allowing_foreign(storage_options, allow_foreign_files)), standard_engine()),
        description,
        mode=mode,
    ).version


@checked
def alter(uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Alter:
    """Change the columns, constraints, properties and features of a Delta table: each method is one commit.

    Parameters
    ----------
    uri: the table.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``TableNotFoundError`` where there is no Delta table.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1]}), "memory://doc-api-alter", mode="overwrite")
    >>> trilake.alter("memory://doc-api-alter").add_constraint("positive", "n > 0")
    1
    >>> trilake.write(pa.table({"n": [-1]}), "memory://doc-api-alter", mode="append")
    Traceback (most recent call last):
    trilake.errors.ConstraintViolatedError: ... CHECK constraint positive (n > 0) violated by row with values: n = -1...
    """
    from trilake.delta.commands.alter.alter_table import Alter

    log = DeltaLog(open_store(uri, dict(storage_options or {})), standard_engine())
    if not log.exists():
        raise TableNotFoundError(
            "no Delta table found",
            help="check the path, or create a table there with trilake.create",
            file=log.store.uri,
        )
    return Alter(log)


@checked
def convert_to_delta(
    uri: str | PathLike[str],
    partition_by: str | Sequence[str] | Mapping[str, TypeLike] | pa.Schema | None = None,
    *,
    target: str | PathLike[str] | None = None,
    collect_stats: bool = True,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ConvertResult:
    """Make a Delta table of a folder of Parquet files, or of an Iceberg table, where it is; no file is rewritten.

    Parameters
    ----------
    uri: the folder.
    partition_by: the partition columns in the order of the folders: names, whose types are inferred, types by name, a
        schema, or SQL such as ``"day date, n int"``.  All is inferred where it is left out.
    target: another place for the log: the table there names the files where they are, as a shallow clone does.
    collect_stats: whether the files' own statistics go into the log.
    properties: table properties.
    storage_options: credentials, region and endpoint of an object store.

    Of an Iceberg table (versions 1 and 2), the newest metadata file in ``metadata/`` says which files are live; columns
    are mapped by their field ids, identity transforms become partition columns, and position deletes become deletion
    vectors.  It takes ``trilake[iceberg]``.

    Where a Delta table is there already, nothing happens.  Raises ``TableNotFoundError`` where there is no file,
    ``CorruptFileError`` for one that is not Parquet, ``SchemaMismatchError`` for files that cannot be one table,
    ``InvalidArgumentError`` for folders that contradict each other, and for what Delta cannot show of an Iceberg table,
    such as equality deletes.

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
    )


@checked
def sync_iceberg(
    uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None, rebuild: bool = False
) -> int:
    """Bring the Iceberg metadata of a Delta table up to date, as after commits of other writers.

    Parameters
    ----------
    uri: the table, whose property ``delta.universalFormat.enabledFormats`` is ``iceberg``.
    storage_options: credentials, region and endpoint of an object store.
    rebuild: write the manifests again from the log, where :func:`verify` says that they are damaged or differ.

    Returns the Delta version that the newest Iceberg snapshot shows.  Raises ``TableNotFoundError`` where there is no
    Delta table, ``InvalidArgumentError`` where its properties do not enable Iceberg, and for files or types that
    Iceberg v2 lacks, and ``MissingDependencyError`` without ``trilake[iceberg]``.

    >>> import pyarrow as pa, tempfile, trilake
    >>> uniform = {"delta.enableIcebergCompatV2": "true", "delta.universalFormat.enabledFormats": "iceberg"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = trilake.write(pa.table({"n": [1, 2]}), folder, properties=uniform)
    ...     trilake.sync_iceberg(folder)
    0
    """
    try:
        from trilake.delta.iceberg.sync import sync
    except ImportError:
        raise missing("pyiceberg", "Iceberg metadata of Delta tables") from None

    log = DeltaLog(open_store(uri, dict(storage_options or {})), standard_engine())
    if not log.exists():
        raise TableNotFoundError("no Delta table to show as Iceberg", file=log.store.uri)
    return sync(log, rebuild=rebuild)


def column_names(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """One name, or several, as a tuple; ``None`` stays what it is."""
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)
