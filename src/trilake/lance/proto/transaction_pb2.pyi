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

class Transaction(_message.Message):
    __slots__ = ("read_version", "uuid", "tag", "transaction_properties", "append", "delete", "overwrite", "create_index", "rewrite", "merge", "restore", "reserve_fragments", "update", "project", "update_config", "data_replacement", "clone", "update_bases")
    class Append(_message.Message):
        __slots__ = ("fragments",)
        fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        def __init__(self, fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ...) -> None: ...
    class Delete(_message.Message):
        __slots__ = ("updated_fragments", "deleted_fragment_ids", "predicate")
        updated_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        deleted_fragment_ids: _containers.RepeatedScalarFieldContainer[int]
        predicate: str
        def __init__(self, updated_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., deleted_fragment_ids: _Optional[_Iterable[int]] = ..., predicate: _Optional[str] = ...) -> None: ...
    class Overwrite(_message.Message):
        __slots__ = ("fragments", "schema", "schema_metadata", "config_upsert_values", "initial_bases")
        fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        schema: _containers.RepeatedCompositeFieldContainer[_format_pb2.Field]
        schema_metadata: _containers.ScalarMap[str, bytes]
        config_upsert_values: _containers.ScalarMap[str, str]
        initial_bases: _containers.RepeatedCompositeFieldContainer[_format_pb2.BasePath]
        def __init__(self, fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., schema: _Optional[_Iterable[_Union[_format_pb2.Field, _Mapping]]] = ..., schema_metadata: _Optional[_Mapping[str, bytes]] = ..., config_upsert_values: _Optional[_Mapping[str, str]] = ..., initial_bases: _Optional[_Iterable[_Union[_format_pb2.BasePath, _Mapping]]] = ...) -> None: ...
    class CreateIndex(_message.Message):
        __slots__ = ("new_indices", "removed_indices")
        new_indices: _containers.RepeatedCompositeFieldContainer[_format_pb2.IndexMetadata]
        removed_indices: _containers.RepeatedCompositeFieldContainer[_format_pb2.IndexMetadata]
        def __init__(self, new_indices: _Optional[_Iterable[_Union[_format_pb2.IndexMetadata, _Mapping]]] = ..., removed_indices: _Optional[_Iterable[_Union[_format_pb2.IndexMetadata, _Mapping]]] = ...) -> None: ...
    class Rewrite(_message.Message):
        __slots__ = ("old_fragments", "new_fragments", "groups", "rewritten_indices")
        class RewriteGroup(_message.Message):
            __slots__ = ("old_fragments", "new_fragments")
            old_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
            new_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
            def __init__(self, old_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., new_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ...) -> None: ...
        class RewrittenIndex(_message.Message):
            __slots__ = ("old_id", "new_id", "new_index_details", "new_index_version")
            old_id: _format_pb2.UUID
            new_id: _format_pb2.UUID
            new_index_details: _format_pb2.IndexDetails
            new_index_version: int
            def __init__(self, old_id: _Optional[_Union[_format_pb2.UUID, _Mapping]] = ..., new_id: _Optional[_Union[_format_pb2.UUID, _Mapping]] = ..., new_index_details: _Optional[_Union[_format_pb2.IndexDetails, _Mapping]] = ..., new_index_version: _Optional[int] = ...) -> None: ...
        old_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        new_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        groups: _containers.RepeatedCompositeFieldContainer[Transaction.Rewrite.RewriteGroup]
        rewritten_indices: _containers.RepeatedCompositeFieldContainer[Transaction.Rewrite.RewrittenIndex]
        def __init__(self, old_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., new_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[Transaction.Rewrite.RewriteGroup, _Mapping]]] = ..., rewritten_indices: _Optional[_Iterable[_Union[Transaction.Rewrite.RewrittenIndex, _Mapping]]] = ...) -> None: ...
    class Merge(_message.Message):
        __slots__ = ("fragments", "schema", "schema_metadata")
        fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        schema: _containers.RepeatedCompositeFieldContainer[_format_pb2.Field]
        schema_metadata: _containers.ScalarMap[str, bytes]
        def __init__(self, fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., schema: _Optional[_Iterable[_Union[_format_pb2.Field, _Mapping]]] = ..., schema_metadata: _Optional[_Mapping[str, bytes]] = ...) -> None: ...
    class Restore(_message.Message):
        __slots__ = ("version",)
        version: int
        def __init__(self, version: _Optional[int] = ...) -> None: ...
    class ReserveFragments(_message.Message):
        __slots__ = ("num_fragments",)
        num_fragments: int
        def __init__(self, num_fragments: _Optional[int] = ...) -> None: ...
    class Update(_message.Message):
        __slots__ = ("removed_fragment_ids", "updated_fragments", "new_fragments", "fields_modified", "fields_for_preserving_frag_bitmap", "update_mode")
        removed_fragment_ids: _containers.RepeatedScalarFieldContainer[int]
        updated_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        new_fragments: _containers.RepeatedCompositeFieldContainer[_format_pb2.DataFragment]
        fields_modified: _containers.RepeatedScalarFieldContainer[int]
        fields_for_preserving_frag_bitmap: _containers.RepeatedScalarFieldContainer[int]
        update_mode: int
        def __init__(self, removed_fragment_ids: _Optional[_Iterable[int]] = ..., updated_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., new_fragments: _Optional[_Iterable[_Union[_format_pb2.DataFragment, _Mapping]]] = ..., fields_modified: _Optional[_Iterable[int]] = ..., fields_for_preserving_frag_bitmap: _Optional[_Iterable[int]] = ..., update_mode: _Optional[int] = ...) -> None: ...
    class Project(_message.Message):
        __slots__ = ("schema",)
        schema: _containers.RepeatedCompositeFieldContainer[_format_pb2.Field]
        def __init__(self, schema: _Optional[_Iterable[_Union[_format_pb2.Field, _Mapping]]] = ...) -> None: ...
    class UpdateMap(_message.Message):
        __slots__ = ("entries", "replace")
        class Entry(_message.Message):
            __slots__ = ("key", "value")
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        entries: _containers.RepeatedCompositeFieldContainer[Transaction.UpdateMap.Entry]
        replace: bool
        def __init__(self, entries: _Optional[_Iterable[_Union[Transaction.UpdateMap.Entry, _Mapping]]] = ..., replace: bool = ...) -> None: ...
    class UpdateConfig(_message.Message):
        __slots__ = ("config", "table_metadata", "schema_metadata", "field_metadata")
        config: Transaction.UpdateMap
        table_metadata: Transaction.UpdateMap
        schema_metadata: Transaction.UpdateMap
        field_metadata: _containers.MessageMap[int, Transaction.UpdateMap]
        def __init__(self, config: _Optional[_Union[Transaction.UpdateMap, _Mapping]] = ..., table_metadata: _Optional[_Union[Transaction.UpdateMap, _Mapping]] = ..., schema_metadata: _Optional[_Union[Transaction.UpdateMap, _Mapping]] = ..., field_metadata: _Optional[_Mapping[int, Transaction.UpdateMap]] = ...) -> None: ...
    class DataReplacement(_message.Message):
        __slots__ = ("replacements",)
        class Group(_message.Message):
            __slots__ = ("fragment_id", "new_file")
            fragment_id: int
            new_file: _format_pb2.DataFile
            def __init__(self, fragment_id: _Optional[int] = ..., new_file: _Optional[_Union[_format_pb2.DataFile, _Mapping]] = ...) -> None: ...
        replacements: _containers.RepeatedCompositeFieldContainer[Transaction.DataReplacement.Group]
        def __init__(self, replacements: _Optional[_Iterable[_Union[Transaction.DataReplacement.Group, _Mapping]]] = ...) -> None: ...
    class Clone(_message.Message):
        __slots__ = ("is_shallow", "ref_name", "ref_version", "ref_path", "branch_name")
        is_shallow: bool
        ref_name: str
        ref_version: int
        ref_path: str
        branch_name: str
        def __init__(self, is_shallow: bool = ..., ref_name: _Optional[str] = ..., ref_version: _Optional[int] = ..., ref_path: _Optional[str] = ..., branch_name: _Optional[str] = ...) -> None: ...
    class UpdateBases(_message.Message):
        __slots__ = ("new_bases",)
        new_bases: _containers.RepeatedCompositeFieldContainer[_format_pb2.BasePath]
        def __init__(self, new_bases: _Optional[_Iterable[_Union[_format_pb2.BasePath, _Mapping]]] = ...) -> None: ...
    read_version: int
    uuid: str
    tag: str
    transaction_properties: _containers.ScalarMap[str, str]
    append: Transaction.Append
    delete: Transaction.Delete
    overwrite: Transaction.Overwrite
    create_index: Transaction.CreateIndex
    rewrite: Transaction.Rewrite
    merge: Transaction.Merge
    restore: Transaction.Restore
    reserve_fragments: Transaction.ReserveFragments
    update: Transaction.Update
    project: Transaction.Project
    update_config: Transaction.UpdateConfig
    data_replacement: Transaction.DataReplacement
    clone: Transaction.Clone
    update_bases: Transaction.UpdateBases
    def __init__(self, read_version: _Optional[int] = ..., uuid: _Optional[str] = ..., tag: _Optional[str] = ..., transaction_properties: _Optional[_Mapping[str, str]] = ..., append: _Optional[_Union[Transaction.Append, _Mapping]] = ..., delete: _Optional[_Union[Transaction.Delete, _Mapping]] = ..., overwrite: _Optional[_Union[Transaction.Overwrite, _Mapping]] = ..., create_index: _Optional[_Union[Transaction.CreateIndex, _Mapping]] = ..., rewrite: _Optional[_Union[Transaction.Rewrite, _Mapping]] = ..., merge: _Optional[_Union[Transaction.Merge, _Mapping]] = ..., restore: _Optional[_Union[Transaction.Restore, _Mapping]] = ..., reserve_fragments: _Optional[_Union[Transaction.ReserveFragments, _Mapping]] = ..., update: _Optional[_Union[Transaction.Update, _Mapping]] = ..., project: _Optional[_Union[Transaction.Project, _Mapping]] = ..., update_config: _Optional[_Union[Transaction.UpdateConfig, _Mapping]] = ..., data_replacement: _Optional[_Union[Transaction.DataReplacement, _Mapping]] = ..., clone: _Optional[_Union[Transaction.Clone, _Mapping]] = ..., update_bases: _Optional[_Union[Transaction.UpdateBases, _Mapping]] = ...) -> None: ...
