"""What an optimization may be asked for: conditions over partition columns, and columns to order rows by."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trilake.delta.commands.optimize.range_ids import is_orderable
from trilake.delta.files.file_statistics import StatisticsPlan
from trilake.delta.log.log import Snapshot
from trilake.delta.protocol.column_mapping import physical_schema
from trilake.delta.protocol.column_names import split_names
from trilake.delta.protocol.schema import DataType, StructType
from trilake.delta.scan.scan import parse_table_filter
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter
from trilake.table import FilterLike


def partition_filter(snapshot: Snapshot, where: FilterLike) -> Filter:
    """A condition over partition columns alone.

    Raises ``FilterError`` where it cannot be understood, ``InvalidArgumentError`` where it asks for other columns.
    """
    filter = parse_table_filter(where, snapshot)
    assert filter is not None
    partition = [snapshot.schema.field(c).name for c in snapshot.metadata.partition_columns]
    other = sorted(set(filter.columns) - set(partition))
    if other:
        raise InvalidArgumentError(
            f"Predicate references non-partition column '{other[0]}'. Only the partition columns may be referenced: "
            f"[{', '.join(partition)}]",
            help="a file is optimized as a whole, so only conditions on its partition can choose it",
            file=snapshot.uri,
        )
    return filter


def zorder_paths(snapshot: Snapshot, columns: Sequence[str], *, check_statistics: bool) -> tuple[tuple[str, ...], ...]:
    """The columns to Z-order by, as paths in the table's spelling.

    Raises ``InvalidArgumentError`` for partition columns, columns that are not there or have no order, and, with
    ``check_statistics``, columns without statistics, by which no reader could skip files.
    """
    partition = {c.lower() for c in snapshot.metadata.partition_columns}
    paths, without = list[tuple[str, ...]](), list[str]()
    indexed = _indexed(snapshot)
    for column in columns:
        names = (split_names(column) or [()])[0]
        if len(names) == 1 and names[0].lower() in partition:
            raise InvalidArgumentError(
                f"{column} is a partition column. Z-Ordering can only be performed on data columns",
                help="rows of a file all have one value of it",
                column=column,
                condition="DELTA_ZORDERING_ON_PARTITION_COLUMN",
            )
        found = _find(snapshot.schema, names)
        if found is None:
            raise InvalidArgumentError(
                f"Z-Ordering column {column} does not exist in data schema",
                help=f"the table has {', '.join(f.name for f in snapshot.schema.fields)}",
                column=column,
            )
        path, physical, type_ = found
        if not is_orderable(type_.arrow):
            raise InvalidArgumentError(f"Z-Ordering column {column} has no order: it is {type_}", column=column)
        if path in paths:
            raise InvalidArgumentError(f"Z-Ordering column {column} is given twice", column=column)
        paths.append(path)
        if physical not in indexed:
            without.append(column)
    if without and check_statistics:
        raise InvalidArgumentError(
            f"Z-Ordering on [{', '.join(without)}] would be ineffective: no statistics are collected for these columns",
            help="raise delta.dataSkippingNumIndexedCols or name the columns in delta.dataSkippingStatsColumns; or"
            " switch this check off: check_statistics=False, on Spark"
            " spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled=false",
            columns=", ".join(without),
        )
    return tuple(paths)


def _find(schema: StructType, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], DataType] | None:
    """A column's path in the table's spelling and in the files', and its type."""
    level: DataType = schema
    path, physical = list[str](), list[str]()
    for name in names:
        found = level.find(name) if isinstance(level, StructType) else None
        if found is None:
            return None
        path.append(found.name)
        physical.append(found.physical_name)
        level = found.type
    return (tuple(path), tuple(physical), level) if path else None


def _indexed(snapshot: Snapshot) -> set[tuple[str, ...]]:
    """The columns that new files get statistics of, as physical paths."""
    metadata = snapshot.metadata
    names = {snapshot.schema.field(c).name for c in metadata.partition_columns}
    inside = StructType(tuple(f for f in snapshot.schema.fields if f.name not in names))
    files: pa.Schema = physical_schema(inside, metadata.column_mapping_mode)
    wanted = StatisticsPlan.of(metadata.configuration, snapshot.schema).wanted(files)
    return {path for path in wanted if path is not None}
