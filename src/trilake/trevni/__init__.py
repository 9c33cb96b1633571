"""Trevni files: readers, writers, tables, and mappings of Arrow, Avro, Protocol Buffers and Thrift.

The modules :mod:`~trilake.trevni.mappings.avro`, :mod:`~trilake.trevni.mappings.protobuf` and
:mod:`~trilake.trevni.mappings.thrift` need optional libraries, so import them directly.
"""

from trilake.trevni.file.column_file import Column, ColumnValues
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.file.writer import TrevniWriter, write
from trilake.trevni.nesting.columns import ColumnOptions
from trilake.trevni.tables.dataset import Split, read_split
from trilake.trevni.tables.row_groups import RowGroupWriter, WriteOptions, discard, new_write_id, publish
from trilake.trevni.tables.table import TrevniTable
from trilake.trevni.tables.table_write import write_table

__all__ = [
    "Column",
    "ColumnOptions",
    "ColumnValues",
    "RowGroupWriter",
    "Split",
    "TrevniFile",
    "TrevniTable",
    "TrevniWriter",
    "WriteOptions",
    "discard",
    "new_write_id",
    "publish",
    "read_split",
    "write",
    "write_table",
]
