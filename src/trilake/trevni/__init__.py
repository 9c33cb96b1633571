"""Trevni column files: reader, writer, tables of them, and the mappings of Arrow, Avro, Protocol Buffers and Thrift.

Avro, Protocol Buffers and Thrift have modules of their own, :mod:`~trilake.trevni.avro`,
:mod:`~trilake.trevni.protobuf` and :mod:`~trilake.trevni.thrift`, which load what they need.
"""

from trilake.trevni.dataset import Split, read_split
from trilake.trevni.file import Column, ColumnValues, TrevniFile
from trilake.trevni.row_groups import RowGroupWriter, WriteOptions, discard, new_write_id, publish, write_table
from trilake.trevni.table import TrevniTable
from trilake.trevni.writer import ColumnOptions, TrevniWriter, write

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
