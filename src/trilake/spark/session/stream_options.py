"""Options of all stream sinks."""

from __future__ import annotations

from trilake.errors import InvalidArgumentError
from trilake.spark.session.options import Options

#: Option: the table existed when the query started, as with ``toTable``, so batches must not create it.
EXISTING = "existingTable"
STREAM_WRITE_OPTIONS = ("checkpointLocation", "queryName", EXISTING)


def checkpoint_of(options: Options) -> str:
    """The checkpoint's path.  Raises ``InvalidArgumentError`` if the options have none."""
    place = options.get("checkpointLocation")
    if not place:
        raise InvalidArgumentError(
            "the sink needs the option checkpointLocation; it cannot see the session's setting",
            help='write .option("checkpointLocation", "/path/to/checkpoint")',
        )
    return place
