"""What holds rows, frames of other libraries and values of Python among it, as Arrow batches."""

from trilake.frames.arrow_rows import arrow_batches, is_dataframe

__all__ = ["arrow_batches", "is_dataframe"]
