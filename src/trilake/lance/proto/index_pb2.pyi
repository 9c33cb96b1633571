# Made by scripts/protos; do not edit.
# ruff: noqa: E501, I001, RUF023, UP007, UP035, UP045
# fmt: off
# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IndexType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VECTOR: _ClassVar[IndexType]

class VectorMetricType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    L2: _ClassVar[VectorMetricType]
    COSINE: _ClassVar[VectorMetricType]
    DOT: _ClassVar[VectorMetricType]
VECTOR: IndexType
L2: VectorMetricType
COSINE: VectorMetricType
DOT: VectorMetricType

class Index(_message.Message):
    __slots__ = ("name", "columns", "dataset_version", "index_type", "vector_index", "checksums")
    name: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    dataset_version: int
    index_type: IndexType
    vector_index: VectorIndex
    checksums: Checksums
    def __init__(self, name: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., dataset_version: _Optional[int] = ..., index_type: _Optional[_Union[IndexType, str]] = ..., vector_index: _Optional[_Union[VectorIndex, _Mapping]] = ..., checksums: _Optional[_Union[Checksums, _Mapping]] = ...) -> None: ...

class Checksums(_message.Message):
    __slots__ = ("model", "partitions")
    model: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("data_type", "shape", "data")
    class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BFLOAT16: _ClassVar[Tensor.DataType]
        FLOAT16: _ClassVar[Tensor.DataType]
        FLOAT32: _ClassVar[Tensor.DataType]
        FLOAT64: _ClassVar[Tensor.DataType]
    BFLOAT16: Tensor.DataType
    FLOAT16: Tensor.DataType
    FLOAT32: Tensor.DataType
    FLOAT64: Tensor.DataType
    data_type: Tensor.DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, data_type: _Optional[_Union[Tensor.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class IVF(_message.Message):
    __slots__ = ("centroids", "offsets", "lengths", "centroids_tensor")
    centroids: _containers.RepeatedScalarFieldContainer[float]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    centroids_tensor: Tensor
    def __init__(self, centroids: _Optional[_Iterable[float]] = ..., offsets: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., centroids_tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class PQ(_message.Message):
    __slots__ = ("num_bits", "num_sub_vectors", "dimension", "codebook", "codebook_tensor")
    num_bits: int
    num_sub_vectors: int
    dimension: int
    codebook: _containers.RepeatedScalarFieldContainer[float]
    codebook_tensor: Tensor
    def __init__(self, num_bits: _Optional[int] = ..., num_sub_vectors: _Optional[int] = ..., dimension: _Optional[int] = ..., codebook: _Optional[_Iterable[float]] = ..., codebook_tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Transform(_message.Message):
    __slots__ = ("position", "shape", "type")
    class TransformType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OPQ: _ClassVar[Transform.TransformType]
    OPQ: Transform.TransformType
    position: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    type: Transform.TransformType
    def __init__(self, position: _Optional[int] = ..., shape: _Optional[_Iterable[int]] = ..., type: _Optional[_Union[Transform.TransformType, str]] = ...) -> None: ...

class Flat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VectorIndexStage(_message.Message):
    __slots__ = ("flat", "ivf", "pq", "transform")
    flat: Flat
    ivf: IVF
    pq: PQ
    transform: Transform
    def __init__(self, flat: _Optional[_Union[Flat, _Mapping]] = ..., ivf: _Optional[_Union[IVF, _Mapping]] = ..., pq: _Optional[_Union[PQ, _Mapping]] = ..., transform: _Optional[_Union[Transform, _Mapping]] = ...) -> None: ...

class VectorIndex(_message.Message):
    __slots__ = ("spec_version", "dimension", "stages", "metric_type")
    spec_version: int
    dimension: int
    stages: _containers.RepeatedCompositeFieldContainer[VectorIndexStage]
    metric_type: VectorMetricType
    def __init__(self, spec_version: _Optional[int] = ..., dimension: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[VectorIndexStage, _Mapping]]] = ..., metric_type: _Optional[_Union[VectorMetricType, str]] = ...) -> None: ...
