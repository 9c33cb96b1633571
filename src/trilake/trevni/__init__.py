"""Trevni column files: reader, writer, and the mappings of Arrow, Avro, Protocol Buffers and Thrift onto them."""

from trilake.trevni.file import TrevniFile

__all__ = ["TrevniFile"]
