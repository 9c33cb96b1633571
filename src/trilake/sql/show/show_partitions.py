"""SHOW PARTITIONS: the partitions that the files of a table are in."""

from __future__ import annotations

from pyspark.sql import DataFrame

from trilake.delta.protocol.partitions import hive_directory
from trilake.delta.protocol.schema import StructType
from trilake.errors import InvalidArgumentError
from trilake.sql.session.frames import open_delta
from trilake.sql.session.results import rows
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.expressions import items


def show_partitions(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame:
    """One row a partition, as ``a=1/b=x``.  Raises ``InvalidArgumentError`` for a table without partitions."""
    snapshot = open_delta(session, target).snapshot if target.format == "delta" else None
    names = () if snapshot is None else snapshot.metadata.partition_columns
    if snapshot is None or not names:
        raise InvalidArgumentError(
            f"[INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED] {target.shown} is not partitioned",
            help="SHOW PARTITIONS is for partitioned tables",
            file=target.path,
        )
    wanted = _wanted(session, cursor, snapshot.schema)
    physical = {n: snapshot.schema.field(n).physical_name for n in names}
    found = set()
    for values in snapshot.adds["partitionValues"].to_pylist():
        given = dict(values)
        shown = {n: given.get(physical[n]) for n in names}
        if all(shown.get(k) == v for k, v in wanted.items()):
            found.add(hive_directory(shown))
    return rows(session, "partition string", [(p,) for p in sorted(found)])


def _wanted(session: SqlSession, cursor: Cursor, schema: StructType) -> dict[str, str | None]:
    out: dict[str, str | None] = {}
    if cursor.accept("PARTITION"):
        for text in items(cursor.text[slice(*cursor.brackets())]):
            piece = Cursor(text)
            name = piece.part()
            found = schema.find(name)
            piece.expect_symbol("=")
            out[name if found is None else found.name] = session.value(f"CAST({piece.rest()} AS STRING)")
    return out
