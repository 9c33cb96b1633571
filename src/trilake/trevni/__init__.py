"""Trevni column files: reader, writer, and the mappings of Arrow, Avro, Protocol Buffers and Thrift onto them."""

from trilake.trevni.file import Column, ColumnValues, TrevniFile
from trilake.trevni.writer import ColumnOptions, TrevniWriter, write

__all__ = ["Column", "ColumnOptions", "ColumnValues", "TrevniFile", "TrevniWriter", "write"]
