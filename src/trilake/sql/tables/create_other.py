"""CREATE TABLE of Lance datasets and Trevni files."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.errors import InvalidArgumentError
from trilake.spark.delta.names.entries import About
from trilake.spark.front.dataframe_writer import SAVERS, SaveRequest
from trilake.sql.grammar.create import Create
from trilake.sql.session import catalogue
from trilake.sql.session.results import nothing
from trilake.sql.session.session import SqlSession
from trilake.sql.tables.create_place import Place, name_first


def create_other(
    session: SqlSession, call: Create, place: Place, schema: T.StructType, frame: DataFrame | None = None
) -> DataFrame:
    """Make the files and the name.  Raises ``InvalidArgumentError`` for what the format does not know."""
    if call.cluster_by or call.checks or any(c.generated or c.default or c.identity for c in call.columns):
        raise InvalidArgumentError(f"a {place.format} table has no rules and no clustering", help="leave these out")
    rows = session.spark.createDataFrame([], schema) if frame is None else frame
    mode = "overwrite" if call.replace else "error"
    request = SaveRequest(rows, place.format, mode, dict(call.properties), call.partition_by or None)
    about = About(T.StructType([T.StructField(f.name, f.dataType, True) for f in schema.fields]), call.comment)
    new = place.parts is not None and not place.exists
    if new and place.managed and not session.classic:
        with name_first(session, place, about):
            SAVERS[place.format](request, place.path)
        return nothing(session)
    SAVERS[place.format](request, place.path)
    if new:
        assert place.parts is not None
        catalogue.add(session, place.parts, place.path, about, format=place.format, managed=place.managed)
    return nothing(session)
