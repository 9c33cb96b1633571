"""Errors that end a stream, one class per cause."""

from __future__ import annotations

from trilake.table.streams import StreamError

#: What to do if a stream has missed commits or files.
DATA_LOSS_HELP = (
    "rows were missed; restart with a new checkpoint, or set failOnDataLoss=false to continue with the remaining rows,"
    " and keep the log and removed files longer (delta.logRetentionDuration, delta.deletedFileRetentionDuration)"
)


class StreamOffsetError(StreamError):
    """A checkpoint holds an invalid offset, or one of another table."""

    code = "STREAM_OFFSET"


class StreamSchemaChangedError(StreamError):
    """The source's columns changed after the stream had started; restart it to use the new ones."""

    code = "STREAM_SCHEMA_CHANGED"
    default_help = (
        "restart the stream: call load() again and start the query with the same checkpoint; all rows before the"
        " change were delivered"
    )


class StreamSchemaIncompatibleError(StreamError):
    """Files yet to be read do not fit the source's current columns."""

    code = "STREAM_SCHEMA_INCOMPATIBLE"
    default_help = "start a new query with a new checkpoint"


class StreamRowsChangedError(StreamError):
    """A commit of the source removed or replaced rows, which a stream of new rows cannot express."""

    code = "STREAM_ROWS_CHANGED"
