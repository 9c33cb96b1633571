"""What no column of a table may be, whoever adds it."""

from __future__ import annotations

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.change_columns import check_change_columns
from trilake.delta.protocol.column_mapping import check_names
from trilake.delta.protocol.schema import StructType, nested_fields
from trilake.delta.protocol.sql_types import check_collation

#: Where Spark notes on a field, whose type stays ``string``, by which rules its texts are compared, such as
#: ``{"name": "spark.UTF8_LCASE"}``.  Who does not know them may read such a table, by the bytes of the texts.
COLLATIONS = "__COLLATIONS"


def check_columns(before: Metadata | None, after: Metadata) -> None:
    """Refuse names that Parquet files or a change data feed have other uses for, and collations.

    ``before`` is the table's metadata before its columns were changed, ``None`` for a new table.
    Raises ``InvalidArgumentError``.
    """
    check_names(after.schema, after.column_mapping_mode)
    check_change_columns(before, after)
    check_collations(after.schema)


def check_collations(schema: StructType) -> None:
    """Raise ``InvalidArgumentError`` for a column that is to have a collation: no table is made with one.

    >>> check_collations(StructType(()))
    """
    for f in nested_fields(schema):
        for name in dict(f.metadata.get(COLLATIONS) or {}).values():
            check_collation(str(name).rpartition(".")[2], f.name)
