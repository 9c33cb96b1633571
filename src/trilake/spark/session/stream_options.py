"""Options that every sink of a stream has."""

from __future__ import annotations

from trilake.errors import InvalidArgumentError
from trilake.spark.session.options import Options

#: Says that the table was there when the query began, as ``toTable`` says: no batch makes it again.
EXISTING = "existingTable"
STREAM_WRITE_OPTIONS = ("checkpointLocation", "queryName", EXISTING)


def checkpoint_of(options: Options) -> str:
    """The checkpoint's place.  Raises ``InvalidArgumentError`` where the options do not say it."""
    place = options.get("checkpointLocation")
    if not place:
        raise InvalidArgumentError(
            "the sink must know the query's checkpoint, and a setting of the session does not reach it",
            help='write .option("checkpointLocation", "/path/to/checkpoint")',
        )
    return place
