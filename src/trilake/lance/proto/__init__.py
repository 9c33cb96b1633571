"""Protobuf messages of Lance: ``.proto`` files, and the modules that ``scripts/protos`` generates from them.

The extra ``lance`` installs the package ``protobuf``.  Other modules import it from here, so that they raise
``MissingDependencyError`` without it.
"""

from trilake.common.extras import missing

try:
    from google.protobuf import any_pb2, empty_pb2
    from google.protobuf.internal.encoder import _VarintBytes as varint  # type: ignore[attr-defined]  # private
    from google.protobuf.message import DecodeError, Message
    from google.protobuf.unknown_fields import UnknownFieldSet
except ImportError:
    raise missing("google.protobuf", "Lance datasets", "lance") from None

__all__ = ["DecodeError", "Message", "UnknownFieldSet", "any_pb2", "empty_pb2", "varint"]
