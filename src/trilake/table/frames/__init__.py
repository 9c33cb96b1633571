"""What holds rows, frames of other libraries and values of Python among it, as Arrow batches."""

from trilake.table.frames.arrow_rows import arrow_batches, is_dataframe

__all__ = ["arrow_batches", "is_dataframe"]
