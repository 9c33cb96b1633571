# Made by scripts/protos; do not edit.
# ruff: noqa: E501, I001, RUF023, UP007, UP035, UP045
# fmt: off
# mypy: disable-error-code="type-arg"
from trilake.lance.proto import format_pb2 as _format_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileDescriptor(_message.Message):
    __slots__ = ("schema", "length")
    schema: Schema
    length: int
    def __init__(self, schema: _Optional[_Union[Schema, _Mapping]] = ..., length: _Optional[int] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ("fields", "metadata")
    fields: _containers.RepeatedCompositeFieldContainer[_format_pb2.Field]
    metadata: _containers.ScalarMap[str, bytes]
    def __init__(self, fields: _Optional[_Iterable[_Union[_format_pb2.Field, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class ColumnMetadata(_message.Message):
    __slots__ = ("encoding", "pages", "buffer_offsets", "buffer_sizes")
    class Page(_message.Message):
        __slots__ = ("buffer_offsets", "buffer_sizes", "length", "encoding", "priority")
        buffer_offsets: _containers.RepeatedScalarFieldContainer[int]
        buffer_sizes: _containers.RepeatedScalarFieldContainer[int]
        length: int
        encoding: Encoding
        priority: int
        def __init__(self, buffer_offsets: _Optional[_Iterable[int]] = ..., buffer_sizes: _Optional[_Iterable[int]] = ..., length: _Optional[int] = ..., encoding: _Optional[_Union[Encoding, _Mapping]] = ..., priority: _Optional[int] = ...) -> None: ...
    encoding: Encoding
    pages: _containers.RepeatedCompositeFieldContainer[ColumnMetadata.Page]
    buffer_offsets: _containers.RepeatedScalarFieldContainer[int]
    buffer_sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, encoding: _Optional[_Union[Encoding, _Mapping]] = ..., pages: _Optional[_Iterable[_Union[ColumnMetadata.Page, _Mapping]]] = ..., buffer_offsets: _Optional[_Iterable[int]] = ..., buffer_sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ("indirect", "direct", "none")
    class Indirect(_message.Message):
        __slots__ = ("buffer_location", "buffer_length")
        buffer_location: int
        buffer_length: int
        def __init__(self, buffer_location: _Optional[int] = ..., buffer_length: _Optional[int] = ...) -> None: ...
    class Direct(_message.Message):
        __slots__ = ("encoding",)
        encoding: bytes
        def __init__(self, encoding: _Optional[bytes] = ...) -> None: ...
    class Missing(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    indirect: Encoding.Indirect
    direct: Encoding.Direct
    none: Encoding.Missing
    def __init__(self, indirect: _Optional[_Union[Encoding.Indirect, _Mapping]] = ..., direct: _Optional[_Union[Encoding.Direct, _Mapping]] = ..., none: _Optional[_Union[Encoding.Missing, _Mapping]] = ...) -> None: ...

class ColumnEncoding(_message.Message):
    __slots__ = ("values", "zone_index", "blob")
    class Values(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Blob(_message.Message):
        __slots__ = ("inner",)
        inner: ColumnEncoding
        def __init__(self, inner: _Optional[_Union[ColumnEncoding, _Mapping]] = ...) -> None: ...
    values: ColumnEncoding.Values
    zone_index: bytes
    blob: ColumnEncoding.Blob
    def __init__(self, values: _Optional[_Union[ColumnEncoding.Values, _Mapping]] = ..., zone_index: _Optional[bytes] = ..., blob: _Optional[_Union[ColumnEncoding.Blob, _Mapping]] = ...) -> None: ...
