"""Convert row containers, including other libraries' DataFrames and Python values, to Arrow batches."""

from trilake.table.frames.arrow_rows import arrow_batches, is_dataframe

__all__ = ["arrow_batches", "is_dataframe"]
