"""Lance's protobuf messages: ``.proto`` files, and the modules that ``scripts/protos`` makes of them.

The package ``protobuf`` comes with the extra ``lance``.  What Lance's other modules need of it they take from here, so
that importing any of them without it raises ``MissingDependencyError``.
"""

from trilake.common.extras import missing

try:
    from google.protobuf import any_pb2
    from google.protobuf.internal.encoder import _VarintBytes as varint  # type: ignore[attr-defined]
    from google.protobuf.message import DecodeError, Message
    from google.protobuf.unknown_fields import UnknownFieldSet
except ImportError:
    raise missing("google.protobuf", "Lance datasets", "lance") from None

__all__ = ["DecodeError", "Message", "UnknownFieldSet", "any_pb2", "varint"]
