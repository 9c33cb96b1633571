"""What can end a stream that reads or writes a table, one class a cause."""

from __future__ import annotations

from trilake.errors import TrilakeError, VersionNotFoundError


class StreamError(TrilakeError):
    """A stream cannot go on, or cannot begin where it was asked to."""

    code = "STREAM"


class StreamOffsetError(StreamError):
    """A checkpoint holds an offset that is none of this table, or that cannot be understood."""

    code = "STREAM_OFFSET"


class StreamSchemaChangedError(StreamError):
    """The source's columns changed after the stream had begun; a restart goes on with the new ones."""

    code = "STREAM_SCHEMA_CHANGED"
    default_help = (
        "all rows before the change were delivered; start the query again, with its load() called again, on the same"
        " checkpoint"
    )


class StreamSchemaIncompatibleError(StreamError):
    """Files that are still to be read cannot be read with the source's present columns."""

    code = "STREAM_SCHEMA_INCOMPATIBLE"
    default_help = "start a query from scratch, with a new checkpoint"


class StreamRowsChangedError(StreamError):
    """A commit of the source removed or replaced rows, which a stream of new rows cannot say."""

    code = "STREAM_ROWS_CHANGED"


class StreamDataLossError(StreamError, VersionNotFoundError):
    """Commits or files that the stream has not read yet are gone: log cleanup or vacuum overtook it."""

    code = "STREAM_DATA_LOSS"
    default_help = (
        "rows were missed; restart with a new checkpoint, or set failOnDataLoss=false to continue with the remaining"
        " rows, and keep the log and removed files longer (delta.logRetentionDuration,"
        " delta.deletedFileRetentionDuration)"
    )
