"""Write rows to data files, one fragment per file.

In: batches of the columns that users see, and their :class:`Target`.  Out: fragments that are not committed yet.

In the legacy format all row groups have the same size, and a file ends after the group that reaches a limit, so it may
exceed the limit by less than a group.  Files of 2.x never exceed the maximum number of rows.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, cycle
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import count
from trilake.common.arrow_types import elements_of, parts
from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, StorageError, TrilakeError, UnknownOutcomeError, WriteFailedError
from trilake.expr.nested import field_problem
from trilake.lance.data_files import new_data_file
from trilake.lance.file import null_masks
from trilake.lance.file.errors import OutsideBasesError, RowsDoNotFitError, WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.interfaces import DataFileWriter
from trilake.lance.file.schema import BLOB, BLOB_V2, Field, LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.file.types import DESCRIPTION_V2, EXTENSION_NAME, EXTERNAL, LISTS
from trilake.lance.file.view import View, stored_array, with_items
from trilake.lance.scan import blob_bytes
from trilake.lance.scan.scan import regroup
from trilake.lance.versions.bases import Bases, location, targets
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import BasePath, DataFile, Fragment
from trilake.storage.base import Store, WriteGroup

NullPolicy = Literal["error", "mask", "zero"]
#: Which URIs of blobs to store: those below a base, all, or none because the bytes are copied.
ExternalBlobs = Literal["bases", "all", "ingest"]

_MAX_ROWS = 2**31 - 1


def check_nulls(nulls: NullPolicy) -> None:
    """Raise ``InvalidArgumentError`` for an unknown null policy."""
    if nulls not in ("error", "mask", "zero"):
        raise InvalidArgumentError(f'nulls must be "error", "mask" or "zero", got {nulls!r}')


@dataclass(frozen=True)
class WriteOptions:
    """File layout and null handling.

    Parameters
    ----------
    max_rows_per_file: maximum rows of a file; in the legacy format rounded up to whole row groups.
    max_rows_per_group: rows of a row group in the legacy format; the last group of a file may be smaller.
    max_bytes_per_file: maximum size of a file in bytes.
    nulls: how to write nulls that the legacy format cannot store: ``"error"`` raises, ``"mask"`` adds a companion
        column, ``"zero"`` writes the placeholder values.  Files of 2.x store all nulls and ignore this option.
    storage_version: file version of a new dataset; ``None`` for that of the existing dataset, or the default.
    stable_row_ids: whether rows of a new dataset keep their ids when moved.
    v2_manifest_names: whether a new dataset uses the v2 naming scheme of manifests; by default in 2.x only.
    properties: properties of the commit.
    config: configuration of a new dataset.
    bases: base paths, which a new dataset registers.
    target_bases: names, paths or URIs of the base paths that get the new data files in turn; the dataset's own URI
        stands for the dataset itself, which is the default.
    target_all_bases: whether all base paths get the new data files in turn, after the dataset itself if true, and
        without it if false; ``None`` for ``target_bases``.
    external_blobs: which URIs of blobs may be stored: those below ``bases``, or ``"all"``; ``"ingest"`` copies their
        bytes instead.
    """

    max_rows_per_file: int = 1 << 20
    max_rows_per_group: int = 1024
    max_bytes_per_file: int = 90 << 30
    nulls: NullPolicy = "error"
    storage_version: StorageVersion | None = None
    stable_row_ids: bool = False
    v2_manifest_names: bool | None = None
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bases: tuple[BasePath, ...] = ()
    target_bases: tuple[str, ...] = ()
    target_all_bases: bool | None = None
    external_blobs: ExternalBlobs = "all"

    @classmethod
    def of(cls, **options: Any) -> WriteOptions:
        """Create options; ``None`` stands for the default."""
        return cls(**{name: value for name, value in options.items() if value is not None})

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "max_rows_per_group", "max_bytes_per_file"):
            count(name, getattr(self, name), least=1, other_type=WrongTypeError)
        if self.max_rows_per_group > _MAX_ROWS:
            raise InvalidArgumentError(f"max_rows_per_group must be at most {_MAX_ROWS}, got {self.max_rows_per_group}")
        check_nulls(self.nulls)


#: Options that the public functions pass on by the same name.
WRITE_OPTIONS = ("max_rows_per_file", "max_rows_per_group", "max_bytes_per_file", "nulls")


class Reporter:
    """Calls a progress object with fragment metadata."""

    def __init__(self, progress: Any, fragment_id: int = 0) -> None:
        self._progress, self._id = progress, fragment_id

    def begin(self, fragment: Fragment) -> None:
        if self._progress is not None:
            self._progress.begin(FragmentMetadata.of(replace(fragment, id=self._id)))

    def complete(self, fragment: Fragment) -> None:
        if self._progress is not None:
            self._progress.complete(FragmentMetadata.of(replace(fragment, id=self._id)))


class Target:
    """The columns to write.

    Parameters
    ----------
    schema: stored schema, including null companions and dictionary values.
    nulls: null policy for columns without companions.
    extend: whether dictionaries of the legacy format may grow; only for new datasets.
    folded: whether the input rows lack the companions, which are then computed.
    fill: whether fields that structs of the input rows lack are null.
    """

    def __init__(
        self,
        schema: LanceSchema,
        version: StorageVersion,
        *,
        nulls: NullPolicy = "error",
        extend: bool = False,
        folded: bool = True,
        fill: bool = False,
    ) -> None:
        version.check_types(schema)
        self.view, self.version = View(schema, folded), version
        #: The stored schema with all dictionary values written so far.
        self.schema = schema
        self.extend = extend
        self._zero, self._fill = nulls == "zero", fill

    @classmethod
    def new(
        cls, schema: pa.Schema, version: StorageVersion, *, nulls: NullPolicy = "error", first_id: int = 0
    ) -> Target:
        """Return the target of a new dataset or of new columns."""
        stored = null_masks.masked_schema(schema) if nulls == "mask" and version.is_legacy else schema
        if version >= BLOBS_V2:
            stored = pa.schema([_blob_field(f) for f in stored], stored.metadata)
        return cls(LanceSchema.from_arrow(stored, first_id), version, nulls=nulls, extend=True)

    @classmethod
    def of(
        cls, schema: LanceSchema, version: StorageVersion, names: Sequence[str], *, nulls: NullPolicy = "error"
    ) -> Target:
        """Return the target of rows appended to a dataset.

        In files of 2.x, nullable columns that ``names`` lacks are omitted, and fields that structs lack are null.
        """
        column_names = {f.name for f in schema.fields}
        if not version.is_legacy and names and column_names.issuperset(names):
            missing = [f for f in schema.fields if f.name not in names]
            if missing and all(f.nullable for f in missing):
                schema = schema.project([f"`{f.name}`" for f in schema.fields if f.name in names])
        return cls(schema, version, nulls=nulls, fill=not version.is_legacy)

    def runs(self) -> list[LanceSchema]:
        """Return the columns of each data file.

        In the legacy format, each file has consecutive field ids, as its readers require.
        """
        if not self.version.is_legacy:
            return [self.schema]
        runs: list[list[Field]] = []
        for field in self.schema.fields:
            if runs and [*runs[-1][-1].walk()][-1].id + 1 == field.id:
                runs[-1].append(field)
            else:
                runs.append([field])
        return [LanceSchema(tuple(run), self.schema.metadata, self.schema.dictionaries) for run in runs]

    def wrote(self, dictionaries: Mapping[int, pa.Array]) -> None:
        """Carry dictionaries of a finished file over to the next one."""
        self.schema = self.schema.with_dictionaries({**self.schema.dictionaries, **dictionaries})

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to the stored columns.  Raises ``SchemaMismatchError``."""
        conformed = self.conform(batch)
        if self._unfolds:
            return null_masks.unfold(conformed, self.view.whole, "zero" if self._zero else "error")
        _check_required(conformed, self.view.schema)
        return conformed

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Match the columns of a batch to the user-visible columns by name, and cast them."""
        schema = self.view.schema.storage_schema
        arrays = []
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        stored = dict.fromkeys(schema.names)
        extra = [n for n in columns if n not in stored]
        missing = [n for n in stored if n not in columns]
        if extra or missing or len(columns) < batch.num_columns:
            what = [f"column {n} is missing" for n in missing] + [f"column {n} is not in the dataset" for n in extra]
            raise RowsDoNotFitError(
                f"the rows do not match the dataset: {'; '.join(what) or 'two columns have the same name'}",
                help="select and rename columns to match the dataset",
            )
        for one, field in zip(schema, self.view.schema.fields, strict=True):
            array = storage_array(stored_array(field, columns[one.name]))
            problem = f"cannot cast {array.type} to {one.type}"
            arrays.append(fitted(array, one, problem, "cast the column", fill=self._fill))
        return pa.RecordBatch.from_arrays(arrays, schema=_open(schema))

    def blank(self, rows: int) -> pa.RecordBatch:
        """Return placeholder rows in stored form, for deleted rows."""
        schema = _open(self.view.schema.storage_schema)
        batch = pa.RecordBatch.from_arrays([_blank(f, rows) for f in self.view.schema.storage_schema], schema=schema)
        conformed = self.conform(batch)
        return null_masks.unfold(conformed, self.view.whole, "zero") if self._unfolds else conformed

    @property
    def _unfolds(self) -> bool:
        """Whether null companions are split off."""
        return self.view.folded and self.version.is_legacy


def fitted(array: pa.Array, one: pa.Field, problem: str, help: str = "", *, fill: bool = False) -> pa.Array:
    """Cast an array to the type of a column; with ``fill``, fields that structs lack become null.

    Raises ``RowsDoNotFitError`` with a description of the problem.
    """
    if array.type == one.type:
        return array
    check_fields(array.type, one, fill=fill)
    try:
        if pa.types.is_dictionary(one.type) and not pa.types.is_dictionary(array.type):
            array = array.cast(one.type.value_type).dictionary_encode()
        return array.cast(one.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as e:
        raise RowsDoNotFitError(f"{problem}: {e}", help=help, column=one.name) from e


def check_fields(source: pa.DataType, one: pa.Field, *, fill: bool = False) -> None:
    """Raise ``RowsDoNotFitError`` if structs at any depth do not have the column's fields, or a cast loses data.

    With ``fill``, they may lack some fields.

    Arrow casts numbers to booleans and timestamps to dates without an error.
    """
    problem = field_problem(source, one.type, one.name, fill=fill)
    if problem is not None:
        raise RowsDoNotFitError(problem, help="rename the fields to match the dataset", column=one.name)
    if _forgets(source, one.type):
        raise RowsDoNotFitError(
            f"cannot cast {source} to {one.type} without loss",
            help="to accept the loss, cast the column before writing",
            column=one.name,
        )


def _forgets(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's cast loses data without an error at any depth: 5 becomes true, or a timestamp its date."""
    if pa.types.is_timestamp(source):
        return bool(pa.types.is_date(target) or pa.types.is_time(target))
    if pa.types.is_boolean(target):
        return bool(pa.types.is_integer(source) or pa.types.is_floating(source) or pa.types.is_decimal(source))
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        shared = [f for f in target if source.get_field_index(f.name) >= 0]
        return any(_forgets(source.field(f.name).type, f.type) for f in shared)
    parts = [getattr(kind, "value_type", None) for kind in (source, target)]
    return None not in parts and _forgets(*parts)


def _check_required(batch: pa.RecordBatch, schema: LanceSchema) -> None:
    for field, array in zip(schema.fields, batch.columns, strict=True):
        for path, values in _required(field.storage_field, array):
            if values.null_count:
                raise RowsDoNotFitError(
                    f"the column is not nullable, but {values.null_count} of {len(values)} values are null",
                    help="fill the nulls, or make the column nullable with alter_columns",
                    column=path,
                )


def _required(field: pa.Field, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the path and values of each non-nullable field; null structs and lists have no values inside.

    Items of fixed-size lists may always be null, as in pylance.
    """
    if not field.nullable:
        yield field.name, array
    kind = field.type
    if not _has_required(kind):
        return
    solid = array.drop_null() if array.null_count else array
    values = [solid.field(i) for i in range(kind.num_fields)] if pa.types.is_struct(kind) else [elements_of(solid)[0]]
    if pa.types.is_map(kind):
        values = [values[0].field(0), values[0].field(1)]
    for child, inner in zip(_checked_parts(kind), values, strict=True):
        yield from ((f"{field.name}.{path}", found) for path, found in _required(child, inner))


def _has_required(kind: pa.DataType) -> bool:
    return any(not child.nullable or _has_required(child.type) for child in _checked_parts(kind))


def _checked_parts(kind: pa.DataType) -> list[pa.Field]:
    return [] if pa.types.is_fixed_size_list(kind) else parts(kind)


def _blank(field: pa.Field, rows: int) -> pa.Array:
    """Return nulls, or zeros and empty strings for a non-nullable field."""
    kind = field.type
    if not field.nullable and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return pa.repeat(pa.scalar(0).cast(kind), rows)
    if not field.nullable and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return pa.repeat(pa.scalar("").cast(kind), rows)
    if pa.types.is_dictionary(kind):
        keys = pa.nulls(rows, kind.index_type)
        return pa.DictionaryArray.from_arrays(keys, pa.array([], kind.value_type))
    return pa.nulls(rows, kind)


#: First file version with external blobs.
BLOBS_V2 = StorageVersion(2, 2)


def _blob_field(field: pa.Field) -> pa.Field:
    """Convert blob fields, at any depth, to the current blob format."""
    metadata = dict(field.metadata or {})
    is_blob = metadata.get(BLOB, b"").lower() == b"true"
    if is_blob and not pa.types.is_nested(field.type):
        del metadata[BLOB]
        kind = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
        return pa.field(field.name, kind, field.nullable, {**metadata, EXTENSION_NAME: BLOB_V2})
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_blob_field(child) for child in field.type]))
    if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        make = pa.list_ if pa.types.is_list(field.type) else pa.large_list
        return field.with_type(make(_blob_field(field.type.value_field)))
    return field


def _open(schema: pa.Schema) -> pa.Schema:
    """Make all fields nullable: nullability is checked separately."""
    return pa.schema([f.with_nullable(True) for f in schema])


# --- blobs at a URI --------------------------------------------------------------------------------------------------


def resolved_blobs(
    store: Store, batch: pa.RecordBatch, schema: LanceSchema, mode: ExternalBlobs, bases: Sequence[BasePath]
) -> pa.RecordBatch:
    """Check the URIs of a batch, or replace them with their bytes.

    Raises ``OutsideBasesError`` for a URI outside the bases, and ``MissingFileError`` for one that cannot be copied.
    """
    if mode == "all" or not any(f.is_blob_v2 for column in schema.fields for f in column.walk()):
        return batch
    folders = tuple(location(base.path).rstrip("/") + "/" for base in bases)
    arrays = [_resolved(store, array, field, mode, folders) for array, field in zip(batch.columns, schema.fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _resolved(store: Store, array: pa.Array, field: Field, mode: ExternalBlobs, folders: tuple[str, ...]) -> pa.Array:
    if field.is_blob_v2:
        return _ingested(store, array) if mode == "ingest" else _inside(array, field, folders)
    if not any(f.is_blob_v2 for f in field.walk()):
        return array
    if field.logical_type in LISTS:
        return with_items(array, lambda items: _resolved(store, items, field.children[0], mode, folders), array.type)
    children = [_resolved(store, array.field(i), child, mode, folders) for i, child in enumerate(field.children)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _inside(array: pa.Array, field: Field, folders: tuple[str, ...]) -> pa.Array:
    for uri in _uris(array).unique().to_pylist():
        if uri is not None and not location(uri).startswith(folders):
            raise OutsideBasesError(
                f"the blob {uri!r} is outside registered external bases",
                help='register its folder with initial_bases, pass external_blob_mode="ingest" to copy it, or '
                "allow_external_blob_outside_bases=True",
                column=field.name,
            )
    return array


def _ingested(store: Store, array: pa.Array) -> pa.Array:
    uris = _uris(array)
    rows = np.flatnonzero(uris.is_valid().to_numpy(zero_copy_only=False))
    if not len(rows):
        return array
    parts = {f.name: part for f, part in zip(array.type, array.flatten(), strict=True)}
    numbers = {"kind": EXTERNAL, "position": parts.get("position"), "size": parts.get("size"), "blob_id": 0}
    chosen = pa.array(rows)
    columns = [
        pc.fill_null(part.take(chosen), 0) if isinstance(part, pa.Array) else pa.repeat(part or 0, len(rows))
        for part in numbers.values()
    ]
    columns = [c.cast(f.type) for c, f in zip([*columns, uris.take(chosen)], DESCRIPTION_V2, strict=True)]
    data = blob_bytes.read((store, "", Bases(store)), pa.StructArray.from_arrays(columns, fields=list(DESCRIPTION_V2)))
    parts["data"] = pc.replace_with_mask(parts["data"], uris.is_valid(), data.cast(parts["data"].type))
    for name in ("uri", "position", "size"):
        if name in parts:
            parts[name] = pc.if_else(uris.is_valid(), pa.scalar(None, parts[name].type), parts[name])
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(list(parts.values()), fields=list(array.type), mask=mask)


def _uris(array: pa.Array) -> pa.Array:
    at = array.type.get_field_index("uri")
    return pa.nulls(len(array), pa.string()) if at < 0 else array.flatten()[at]


# --- files -----------------------------------------------------------------------------------------------------------


def write_fragments(
    store: Store,
    batches: Iterable[pa.RecordBatch],
    target: Target,
    options: WriteOptions,
    runtime: Runtime,
    *,
    progress: Reporter | None = None,
    together: WriteGroup | None = None,
) -> list[Fragment]:
    """Write rows to new data files, and return one fragment per file; without rows, there is none.

    The files do not belong to the dataset before the commit, and are removed if the write fails.  The files of a group
    ``together`` become visible when the caller finishes the group.  Raises ``SchemaMismatchError``,
    ``InvalidArgumentError`` and ``WriteFailedError``.
    """
    done: list[Fragment] = []
    mode, bases = options.external_blobs, options.bases
    base_ids = cycle(targets(store, bases, options.target_bases, options.target_all_bases))
    roots = Bases(store, bases)
    stored = (resolved_blobs(store, target.stored(b), target.view.schema, mode, bases) for b in batches if b.num_rows)

    def begin() -> _Files:
        files = _Files(together or store, target, runtime, roots, next(base_ids))
        if progress is not None:
            progress.begin(files.fragment)
        return files

    try:
        first = next(stored, None)
        opened = None if first is None else begin()  # report the fragment before waiting for rows
        pieces = _Pieces(chain(() if first is None else (first,), stored), target, options)
        while opened is not None:
            with opened as files:
                for piece in pieces.of_file(files):
                    files.write(piece)
                done.append(files.fragment)
                done[-1] = files.close()
            if progress is not None:
                progress.complete(done[-1])
            opened = begin() if pieces.has_more() else None
    except BaseException as e:
        if together is not None:
            together.abandon()
        discard(store, done, bases)
        if isinstance(e, StorageError):
            raise write_failed(store, e) from e
        raise
    return done


class _Pieces:
    """Split rows into the pieces to write: row groups in the legacy format, else the input batches."""

    def __init__(self, batches: Iterable[pa.RecordBatch], target: Target, options: WriteOptions) -> None:
        self._whole = target.version.is_legacy
        rows_per_group = min(options.max_rows_per_group, options.max_rows_per_file)
        self._batches = regroup(batches, rows_per_group) if self._whole else iter(batches)
        # The legacy format supports at most 2**31 rows.
        most = _MAX_ROWS - options.max_rows_per_group if self._whole else _MAX_ROWS
        self._rows_per_file, self._bytes_per_file = min(options.max_rows_per_file, most), options.max_bytes_per_file
        self._waiting: Any = None

    def has_more(self) -> bool:
        if self._waiting is None:
            self._waiting = next((b for b in self._batches if b.num_rows), None)
        return self._waiting is not None

    def of_file(self, files: _Files) -> Iterator[pa.RecordBatch]:
        """Yield the pieces of a new fragment, until its files have enough rows or bytes."""
        while not files.num_rows or (files.num_rows < self._rows_per_file and files.size < self._bytes_per_file):
            if not self.has_more():
                return
            piece, self._waiting = self._waiting, None
            room = self._rows_per_file - files.num_rows
            if not self._whole and piece.num_rows > room:
                piece, self._waiting = piece.slice(0, room), piece.slice(room)
            yield piece


def write_failed(store: Store, error: StorageError) -> WriteFailedError:
    """Return the error for a failed write."""
    return WriteFailedError(f"the rows could not be written: {error.message}", file=store.uri)


def _file_name(runtime: Runtime) -> str:
    """Return a new file name: 24 random bits, which spread files over the partitions of an object store, then others.

    As in pylance 14.
    """
    digits = uuid.UUID(runtime.new_id()).hex
    return f"{int(digits[:6], 16):024b}{digits[6:]}.lance"


class _Files:
    """The data files of a new fragment, one for each run of field ids."""

    def __init__(
        self,
        store: Store | WriteGroup,
        target: Target,
        runtime: Runtime,
        bases: Bases | None = None,
        base_id: int | None = None,
    ) -> None:
        self._target = target
        self._runs = target.runs()
        entries = (DataFile(_file_name(runtime), r.field_ids, base_id=base_id) for r in self._runs)
        self.fragment = Fragment(0, tuple(entries))
        self._writers: list[DataFileWriter] = []
        for entry, schema in zip(self.fragment.files, self._runs):
            file_store, key = (store, entry.key) if bases is None or base_id is None else bases.data_file(entry)
            writer = new_data_file(file_store, key, schema, target.version, extend_dictionaries=target.extend)
            self._writers.append(writer)

    @property
    def num_rows(self) -> int:
        return self._writers[0].num_rows

    @property
    def size(self) -> int:
        return sum(writer.size for writer in self._writers)

    def write(self, batch: pa.RecordBatch) -> None:
        if len(self._writers) == 1:
            self._writers[0].write(batch)
            return
        for writer, schema in zip(self._writers, self._runs):
            writer.write(batch.select(schema.names))

    def close(self) -> Fragment:
        entries = []
        for writer, entry in zip(self._writers, self.fragment.files):
            done = writer.close()
            major, minor = done.version
            entry = replace(entry, fields=done.field_ids, column_indices=done.column_indices, size_bytes=done.size)
            entries.append(replace(entry, major_version=major, minor_version=minor))
            self._target.wrote(writer.dictionaries)
        return replace(self.fragment, files=tuple(entries), physical_rows=self.num_rows)

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            for writer in self._writers:
                writer.discard()


def in_parts(batches: Iterator[pa.RecordBatch], sizes: Iterable[int]) -> Iterator[Iterator[pa.RecordBatch]]:
    """Divide batches by numbers of rows; each part must be read before the next one."""
    rest: pa.RecordBatch | None = None

    def part(size: int) -> Iterator[pa.RecordBatch]:
        nonlocal rest
        while size:
            batch = next(batches, None) if rest is None else rest
            if batch is None:
                return
            rest = batch.slice(size) if batch.num_rows > size else None
            batch = batch.slice(0, size)
            size -= batch.num_rows
            yield batch

    return map(part, sizes)


def write_columns(
    store: Store | WriteGroup, batches: Iterable[pa.RecordBatch], target: Target, runtime: Runtime, rows: int
) -> tuple[DataFile, ...]:
    """Write columns for existing rows, one file per run of field ids; each stored batch becomes a row group.

    Raises ``RowsDoNotFitError`` unless there are as many as ``rows``; then no file is published.
    """
    with _Files(store, target, runtime) as files:
        for batch in batches:
            files.write(batch)
        if files.num_rows != rows:
            raise RowsDoNotFitError(f"expected {rows} new values, got {files.num_rows}")
        return files.close().files


@contextmanager
def discarded_on_failure(store: Store, written: Iterable[Fragment], bases: Iterable[BasePath] = ()) -> Iterator[None]:
    """Remove new files if the block fails to commit them, unless the outcome of the commit is unknown."""
    try:
        yield
    except UnknownOutcomeError:
        raise
    except BaseException:  # user functions may raise anything
        discard(store, written, bases)
        raise


def discard(store: Store, fragments: Iterable[Fragment], bases: Iterable[BasePath] = ()) -> None:
    """Remove the data files of uncommitted fragments, with their blobs."""
    roots = Bases(store, bases)
    by_base: dict[int | None, list[DataFile]] = {}
    for fragment in fragments:
        for file in fragment.files:
            by_base.setdefault(file.base_id, []).append(file)
    for files in by_base.values():
        with suppress(TrilakeError, OSError):  # the failure of the write matters; a clean-up removes the rest
            file_store, keys = roots.data_file(files[0])[0], [roots.data_file(file)[1] for file in files]
            blobs = [entry.key for key in keys for entry in file_store.list(key.removesuffix(".lance") + "/")]
            file_store.delete([*keys, *blobs])
