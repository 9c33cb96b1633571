# Made by scripts/protos; do not edit.
# ruff: noqa: E501, I001, RUF023, UP007, UP035, UP045
# fmt: off
# mypy: disable-error-code="type-arg"
from trilake.lance.proto import encodings21_pb2 as _encodings21_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanarLayout(_message.Message):
    __slots__ = ("structure", "values")
    structure: StructuralPlane
    values: ValuePlane
    def __init__(self, structure: _Optional[_Union[StructuralPlane, _Mapping]] = ..., values: _Optional[_Union[ValuePlane, _Mapping]] = ...) -> None: ...

class StructuralPlane(_message.Message):
    __slots__ = ("dense", "sparse")
    dense: DensePlane
    sparse: SparsePlane
    def __init__(self, dense: _Optional[_Union[DensePlane, _Mapping]] = ..., sparse: _Optional[_Union[SparsePlane, _Mapping]] = ...) -> None: ...

class DensePlane(_message.Message):
    __slots__ = ("layers",)
    layers: _containers.RepeatedScalarFieldContainer[_encodings21_pb2.Layer]
    def __init__(self, layers: _Optional[_Iterable[_Union[_encodings21_pb2.Layer, str]]] = ...) -> None: ...

class SparsePlane(_message.Message):
    __slots__ = ("layers",)
    layers: _containers.RepeatedCompositeFieldContainer[SparseLayer]
    def __init__(self, layers: _Optional[_Iterable[_Union[SparseLayer, _Mapping]]] = ...) -> None: ...

class SparseLayer(_message.Message):
    __slots__ = ("validity", "list", "fixed_size_list")
    validity: ValiditySet
    list: SparseList
    fixed_size_list: SparseFixedSizeList
    def __init__(self, validity: _Optional[_Union[ValiditySet, _Mapping]] = ..., list: _Optional[_Union[SparseList, _Mapping]] = ..., fixed_size_list: _Optional[_Union[SparseFixedSizeList, _Mapping]] = ...) -> None: ...

class ValiditySet(_message.Message):
    __slots__ = ("meaning", "positions", "num_positions")
    class Meaning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MEANING_UNSPECIFIED: _ClassVar[ValiditySet.Meaning]
        NULLS: _ClassVar[ValiditySet.Meaning]
        VALID: _ClassVar[ValiditySet.Meaning]
    MEANING_UNSPECIFIED: ValiditySet.Meaning
    NULLS: ValiditySet.Meaning
    VALID: ValiditySet.Meaning
    meaning: ValiditySet.Meaning
    positions: _encodings21_pb2.CompressiveEncoding
    num_positions: int
    def __init__(self, meaning: _Optional[_Union[ValiditySet.Meaning, str]] = ..., positions: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., num_positions: _Optional[int] = ...) -> None: ...

class SparseList(_message.Message):
    __slots__ = ("num_child_slots", "non_empty_positions", "num_non_empty", "counts", "validity")
    num_child_slots: int
    non_empty_positions: _encodings21_pb2.CompressiveEncoding
    num_non_empty: int
    counts: _encodings21_pb2.CompressiveEncoding
    validity: ValiditySet
    def __init__(self, num_child_slots: _Optional[int] = ..., non_empty_positions: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., num_non_empty: _Optional[int] = ..., counts: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., validity: _Optional[_Union[ValiditySet, _Mapping]] = ...) -> None: ...

class SparseFixedSizeList(_message.Message):
    __slots__ = ("dimension", "validity")
    dimension: int
    validity: ValiditySet
    def __init__(self, dimension: _Optional[int] = ..., validity: _Optional[_Union[ValiditySet, _Mapping]] = ...) -> None: ...

class ChunkedLevels(_message.Message):
    __slots__ = ("repetition", "definition", "repetition_index_depth")
    repetition: _encodings21_pb2.CompressiveEncoding
    definition: _encodings21_pb2.CompressiveEncoding
    repetition_index_depth: int
    def __init__(self, repetition: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., definition: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., repetition_index_depth: _Optional[int] = ...) -> None: ...

class Chunked(_message.Message):
    __slots__ = ("value", "levels", "dictionary", "num_dictionary_items", "num_buffers", "num_items")
    value: _encodings21_pb2.CompressiveEncoding
    levels: ChunkedLevels
    dictionary: _encodings21_pb2.CompressiveEncoding
    num_dictionary_items: int
    num_buffers: int
    num_items: int
    def __init__(self, value: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., levels: _Optional[_Union[ChunkedLevels, _Mapping]] = ..., dictionary: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., num_dictionary_items: _Optional[int] = ..., num_buffers: _Optional[int] = ..., num_items: _Optional[int] = ...) -> None: ...

class ZippedLevels(_message.Message):
    __slots__ = ("bits_repetition", "bits_definition")
    bits_repetition: int
    bits_definition: int
    def __init__(self, bits_repetition: _Optional[int] = ..., bits_definition: _Optional[int] = ...) -> None: ...

class Zipped(_message.Message):
    __slots__ = ("value", "levels", "bits_per_value", "bits_per_offset", "num_items", "num_visible_items")
    value: _encodings21_pb2.CompressiveEncoding
    levels: ZippedLevels
    bits_per_value: int
    bits_per_offset: int
    num_items: int
    num_visible_items: int
    def __init__(self, value: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., levels: _Optional[_Union[ZippedLevels, _Mapping]] = ..., bits_per_value: _Optional[int] = ..., bits_per_offset: _Optional[int] = ..., num_items: _Optional[int] = ..., num_visible_items: _Optional[int] = ...) -> None: ...

class ConstantValues(_message.Message):
    __slots__ = ("scalar",)
    scalar: bytes
    def __init__(self, scalar: _Optional[bytes] = ...) -> None: ...

class NoValues(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IndexedValues(_message.Message):
    __slots__ = ("indices", "items")
    indices: _encodings21_pb2.CompressiveEncoding
    items: Zipped
    def __init__(self, indices: _Optional[_Union[_encodings21_pb2.CompressiveEncoding, _Mapping]] = ..., items: _Optional[_Union[Zipped, _Mapping]] = ...) -> None: ...

class ValuePlane(_message.Message):
    __slots__ = ("chunked", "zipped", "constant", "none", "indexed")
    chunked: Chunked
    zipped: Zipped
    constant: ConstantValues
    none: NoValues
    indexed: IndexedValues
    def __init__(self, chunked: _Optional[_Union[Chunked, _Mapping]] = ..., zipped: _Optional[_Union[Zipped, _Mapping]] = ..., constant: _Optional[_Union[ConstantValues, _Mapping]] = ..., none: _Optional[_Union[NoValues, _Mapping]] = ..., indexed: _Optional[_Union[IndexedValues, _Mapping]] = ...) -> None: ...
