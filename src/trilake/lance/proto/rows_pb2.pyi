# Made by scripts/protos; do not edit.
# ruff: noqa: E501, I001, RUF023, UP007, UP035, UP045
# fmt: off
# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RowIdSequence(_message.Message):
    __slots__ = ("segments",)
    segments: _containers.RepeatedCompositeFieldContainer[U64Segment]
    def __init__(self, segments: _Optional[_Iterable[_Union[U64Segment, _Mapping]]] = ...) -> None: ...

class U64Segment(_message.Message):
    __slots__ = ("range", "range_with_holes", "range_with_bitmap", "sorted_array", "array")
    class Range(_message.Message):
        __slots__ = ("start", "end")
        start: int
        end: int
        def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
    class RangeWithHoles(_message.Message):
        __slots__ = ("start", "end", "holes")
        start: int
        end: int
        holes: EncodedU64Array
        def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., holes: _Optional[_Union[EncodedU64Array, _Mapping]] = ...) -> None: ...
    class RangeWithBitmap(_message.Message):
        __slots__ = ("start", "end", "bitmap")
        start: int
        end: int
        bitmap: bytes
        def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., bitmap: _Optional[bytes] = ...) -> None: ...
    range: U64Segment.Range
    range_with_holes: U64Segment.RangeWithHoles
    range_with_bitmap: U64Segment.RangeWithBitmap
    sorted_array: EncodedU64Array
    array: EncodedU64Array
    def __init__(self, range: _Optional[_Union[U64Segment.Range, _Mapping]] = ..., range_with_holes: _Optional[_Union[U64Segment.RangeWithHoles, _Mapping]] = ..., range_with_bitmap: _Optional[_Union[U64Segment.RangeWithBitmap, _Mapping]] = ..., sorted_array: _Optional[_Union[EncodedU64Array, _Mapping]] = ..., array: _Optional[_Union[EncodedU64Array, _Mapping]] = ...) -> None: ...

class EncodedU64Array(_message.Message):
    __slots__ = ("u16", "u32", "u64")
    class Offsets(_message.Message):
        __slots__ = ("base", "offsets")
        base: int
        offsets: bytes
        def __init__(self, base: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...
    class Values(_message.Message):
        __slots__ = ("values",)
        values: bytes
        def __init__(self, values: _Optional[bytes] = ...) -> None: ...
    u16: EncodedU64Array.Offsets
    u32: EncodedU64Array.Offsets
    u64: EncodedU64Array.Values
    def __init__(self, u16: _Optional[_Union[EncodedU64Array.Offsets, _Mapping]] = ..., u32: _Optional[_Union[EncodedU64Array.Offsets, _Mapping]] = ..., u64: _Optional[_Union[EncodedU64Array.Values, _Mapping]] = ...) -> None: ...

class RowVersions(_message.Message):
    __slots__ = ("runs",)
    class Run(_message.Message):
        __slots__ = ("span", "version")
        span: U64Segment
        version: int
        def __init__(self, span: _Optional[_Union[U64Segment, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...
    runs: _containers.RepeatedCompositeFieldContainer[RowVersions.Run]
    def __init__(self, runs: _Optional[_Iterable[_Union[RowVersions.Run, _Mapping]]] = ...) -> None: ...
