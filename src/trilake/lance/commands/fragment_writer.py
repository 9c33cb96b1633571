"""Rows into data files, one fragment a file.

In the first format files are made of row groups of equal size, and a file is closed behind the group that reaches a
limit, so that it is as large as the limit or a little larger.  Files of 2.x have as many rows as the limit says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, Protocol

import pyarrow as pa

from trilake.common.arguments import count
from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, StorageError, TrilakeError, UnknownOutcomeError, WriteFailedError
from trilake.expr.nested import field_problem
from trilake.lance.data_files import new_data_file
from trilake.lance.file import null_masks
from trilake.lance.file.errors import RowsDoNotFitError, WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import BLOB, BLOB_V2, Field, LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.file.types import EXTENSION_NAME
from trilake.lance.file.view import View, stored_array
from trilake.lance.file.writer import DataFileWriter
from trilake.lance.scan.batch_sizes import regroup
from trilake.lance.versions.manifest import BasePath, DataFile, Fragment
from trilake.storage.base import Store, WriteGroup

NullPolicy = Literal["error", "mask", "zero"]

_MAX_ROWS = 2**31 - 1


def check_nulls(nulls: NullPolicy) -> None:
    """Raise ``InvalidArgumentError`` for what says nothing of nulls."""
    if nulls not in ("error", "mask", "zero"):
        raise InvalidArgumentError(f"nulls is {nulls!r}", help='it is "error", "mask" or "zero"')


@dataclass(frozen=True)
class WriteOptions:
    """The layout of rows in files, and the treatment of nulls.

    Parameters
    ----------
    max_rows_per_file: rows of a file; in the first format it ends behind the row group that reaches them.
    max_rows_per_group: rows of a row group of the first format; the last of a file may have fewer.
    max_bytes_per_file: another limit of a file, in bytes.
    nulls: for values that the first format cannot hold as null: ``"error"`` refuses them, ``"mask"`` keeps them by a
        companion column, ``"zero"`` writes what happens to be in their place.  Files of 2.x hold nulls: no value needs
        any of it there, and all nulls are kept.
    storage_version: of the files of a new dataset; ``None`` for that of the dataset, or today's default.
    stable_row_ids: whether rows of a new dataset keep their ids when they move.
    v2_manifest_names: how manifests of a new dataset are named; ``None`` for the way that suits its files.
    properties: what the commit says of itself.
    config: entries of the configuration of a new dataset.
    bases: other places that files of a new dataset may lie in.
    partial: whether rows that are added may lack columns, which are null then, in files of 2.x.
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
    partial: bool = False

    @property
    def rows_per_group(self) -> int:
        """Rows of a row group: no more than a file may have."""
        return min(self.max_rows_per_group, self.max_rows_per_file)

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "max_rows_per_group", "max_bytes_per_file"):
            count(name, getattr(self, name), least=1, other_type=WrongTypeError)
        if self.max_rows_per_group > _MAX_ROWS:
            raise InvalidArgumentError(f"a row group has {_MAX_ROWS} rows at most")
        check_nulls(self.nulls)


#: Names of the options that programs give by these names.
WRITE_OPTIONS = ("max_rows_per_file", "max_rows_per_group", "max_bytes_per_file", "nulls")


class Progress(Protocol):
    """Told of each fragment when it begins and when it is complete."""

    def begin(self, fragment: Fragment) -> None: ...

    def complete(self, fragment: Fragment) -> None: ...


class Target:
    """The columns that rows are written into.

    Parameters
    ----------
    schema: as it is stored, with companions, and with the values of dictionaries that are there already.
    nulls: for columns without companions.
    folded: whether rows come without the companions; else those are columns like others.
    extend: whether dictionaries of the first format may get more values: those of a new dataset may.
    version: of the files.

    Raises ``UnsupportedProtocolError`` for a type that files of the version do not have.
    """

    def __init__(
        self,
        schema: LanceSchema,
        version: StorageVersion,
        *,
        nulls: NullPolicy = "error",
        extend: bool = False,
        folded: bool = True,
    ) -> None:
        version.check_types(schema)
        self.view, self.version = View(schema, folded), version
        #: The stored schema, with all dictionary values of what was written so far.
        self.schema = schema
        self.extend = extend
        self._zero = nulls == "zero"

    @classmethod
    def new(
        cls, schema: pa.Schema, version: StorageVersion, *, nulls: NullPolicy = "error", first_id: int = 0
    ) -> Target:
        """The target of rows that begin a dataset, or whose columns are new in one.  Raises as a write does."""
        stored = companion_schema(schema) if nulls == "mask" and version.is_first else schema
        if version >= BLOBS_V2:
            stored = pa.schema([_blob_field(f) for f in stored], stored.metadata)
        return cls(LanceSchema.from_arrow(stored, first_id), version, nulls=nulls, extend=True)

    @classmethod
    def of(
        cls, schema: LanceSchema, version: StorageVersion, names: Sequence[str], *, nulls: NullPolicy = "error"
    ) -> Target:
        """The target of rows that are added to a dataset.

        In files of 2.x, columns that the rows do not have, by their ``names``, are left out where they may be null.
        """
        known = {f.name for f in schema.fields}
        if not version.is_first and names and known.issuperset(names):
            missing = [f for f in schema.fields if f.name not in names]
            if missing and all(f.nullable for f in missing):
                schema = schema.project([f"`{f.name}`" for f in schema.fields if f.name in names])
        return cls(schema, version, nulls=nulls)

    def runs(self) -> list[LanceSchema]:
        """The columns of each file.

        Those of the first format are runs of ids without a gap, as readers of old want them.
        """
        if not self.version.is_first:
            return [self.schema]
        runs: list[list[Field]] = []
        for field in self.schema.fields:
            if runs and [*runs[-1][-1].walk()][-1].id + 1 == field.id:
                runs[-1].append(field)
            else:
                runs.append([field])
        return [LanceSchema(tuple(run), self.schema.metadata, self.schema.dictionaries) for run in runs]

    def wrote(self, dictionaries: Mapping[int, pa.Array]) -> None:
        """Keep the dictionaries that a file has used: the next one goes on with them."""
        self.schema = self.schema.with_dictionaries({**self.schema.dictionaries, **dictionaries})

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in the columns and types of the target.  Raises ``SchemaMismatchError``."""
        return self._stored(self.conform(batch))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in the columns and types that users see, matched by name."""
        wanted = self.view.schema.storage_schema
        arrays = []
        names = batch.schema.names
        extra = [n for n in names if n not in wanted.names]
        missing = [n for n in wanted.names if n not in names]
        if extra or missing or len(set(names)) < len(names):
            what = [f"no column {n}" for n in missing] + [f"a column {n} that the dataset lacks" for n in extra]
            raise RowsDoNotFitError(
                f"the rows have {' and '.join(what) or 'two columns of one name'}",
                help="select and name the columns as the dataset has them",
            )
        for one, field in zip(wanted, self.view.schema.fields, strict=True):
            array = storage_array(stored_array(field, batch.column(names.index(one.name))))
            arrays.append(self._converted(array, one))
        return pa.RecordBatch.from_arrays(arrays, schema=_open(wanted))

    def blank(self, rows: int) -> pa.RecordBatch:
        """Rows of which nobody reads the values, as they are stored."""
        wanted = _open(self.view.schema.storage_schema)
        batch = pa.RecordBatch.from_arrays([_blank(f.type, rows) for f in wanted], schema=wanted)
        conformed = self.conform(batch)
        return null_masks.unfold(conformed, self.view.whole, "zero") if self._unfolds else conformed

    @property
    def _unfolds(self) -> bool:
        """Whether nulls are kept by companions, or lost."""
        return self.view.folded and self.version.is_first

    def _converted(self, array: pa.Array, one: pa.Field) -> pa.Array:
        if array.type == one.type:
            return array
        check_fields(array.type, one)
        try:
            if pa.types.is_dictionary(one.type) and not pa.types.is_dictionary(array.type):
                array = array.cast(one.type.value_type).dictionary_encode()
            return array.cast(one.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
            raise RowsDoNotFitError(
                f"a value of {array.type} does not fit {one.type}: {e}", help="cast the column", column=one.name
            ) from e

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._unfolds:
            _check_required(batch, self.view.schema)
            return batch
        return null_masks.unfold(batch, self.view.whole, "zero" if self._zero else "error")


def check_fields(source: pa.DataType, one: pa.Field) -> None:
    """Raise ``RowsDoNotFitError`` where structs of ``source``, at any depth, have not the fields of a column's.

    So it does where numbers would become booleans, and times days, which no cast refuses.
    """
    problem = field_problem(source, one.type, one.name)
    if problem is not None:
        raise RowsDoNotFitError(problem, help="name the fields as the dataset has them", column=one.name)
    if _forgets(source, one.type):
        raise RowsDoNotFitError(f"a value of {source} does not fit {one.type}", help="cast the column", column=one.name)


def _forgets(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow casts without an error what does not fit, at any depth: 5 to true, or a time to its day."""
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
    """Raise ``RowsDoNotFitError`` for a null in a column that must not have any."""
    for field, array in zip(schema.fields, batch.columns, strict=True):
        if not field.nullable and array.null_count:
            raise RowsDoNotFitError(
                f"a null is in a column that must not be null: {array.null_count} of {len(array)} values",
                help="fill the nulls, or make the column nullable with alter_columns",
                column=field.name,
            )


def _blank(kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_dictionary(kind):
        keys = pa.nulls(rows, kind.index_type)
        return pa.DictionaryArray.from_arrays(keys, pa.array([], kind.value_type))
    return pa.nulls(rows, kind)


#: The version from which on blobs may lie in other files.
BLOBS_V2 = StorageVersion(2, 2)


def _blob_field(field: pa.Field) -> pa.Field:
    """A column of blobs, or one with blobs in it, as files of today have it; any other as it is."""
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


def companion_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with a companion for each column whose nulls the format would lose."""
    return null_masks.masked_schema(schema)


def _open(schema: pa.Schema) -> pa.Schema:
    """The schema with all columns nullable: what may not be null is for the policy of nulls to say."""
    return pa.schema([f.with_nullable(True) for f in schema])


# --- row groups ------------------------------------------------------------------------------------------------------


# --- files -----------------------------------------------------------------------------------------------------------


def write_fragments(
    store: Store,
    batches: Iterable[pa.RecordBatch],
    target: Target,
    options: WriteOptions,
    runtime: Runtime,
    progress: Progress | None = None,
    together: WriteGroup | None = None,
) -> list[Fragment]:
    """Write rows into new data files, and return a fragment for each; no rows, no fragment.

    Nothing of it is visible before it is committed.  Where the write fails, the files it left are removed.  Files that
    are written ``together`` are there when the caller finishes the group.

    Raises ``SchemaMismatchError``, ``InvalidArgumentError`` and ``WriteFailedError``.
    """
    done: list[Fragment] = []
    stored = (target.stored(b) for b in batches if b.num_rows)

    def begin() -> _Files:
        files = _Files(together or store, target, runtime)
        if progress is not None:
            progress.begin(files.fragment)
        return files

    try:
        first = next(stored, None)
        opened = None if first is None else begin()  # told of before rows are waited for
        pieces = _Pieces(chain(() if first is None else (first,), stored), target, options)
        while opened is not None:
            with opened as files:
                while not files.num_rows or (
                    files.num_rows < pieces.rows_per_file and files.size < options.max_bytes_per_file
                ):
                    piece = pieces.next(pieces.rows_per_file - files.num_rows)
                    if piece is None:
                        break
                    files.write(piece)
                done.append(files.fragment)
                done[-1] = files.close()
            if progress is not None:
                progress.complete(done[-1])
            opened = begin() if pieces.has_more() else None
    except BaseException as e:
        if together is not None:
            together.abandon()
        discard(store, done)
        if isinstance(e, StorageError):
            raise write_failed(store, e) from e
        raise
    return done


class _Pieces:
    """Rows in the pieces that go into a file one by one: row groups of the first format, else as they come."""

    def __init__(self, batches: Iterable[pa.RecordBatch], target: Target, options: WriteOptions) -> None:
        self._whole = target.version.is_first
        self._batches = regroup(batches, options.rows_per_group) if self._whole else iter(batches)
        # 2**31 rows is the limit of the first format itself.
        most = _MAX_ROWS - options.max_rows_per_group if self._whole else _MAX_ROWS
        self.rows_per_file = min(options.max_rows_per_file, most)
        self._waiting: Any = None

    def has_more(self) -> bool:
        """Whether rows are left."""
        if self._waiting is None:
            self._waiting = next((b for b in self._batches if b.num_rows), None)
        return self._waiting is not None

    def next(self, rows: int) -> pa.RecordBatch | None:
        """The next piece: a row group, or at most so many rows; ``None`` where nothing is left."""
        self.has_more()
        piece, self._waiting = self._waiting, None
        if piece is not None and not self._whole and piece.num_rows > rows:
            piece, self._waiting = piece.slice(0, rows), piece.slice(rows)
        return piece


def write_failed(store: Store, error: StorageError) -> WriteFailedError:
    """The error of a write whose files could not be written."""
    return WriteFailedError(f"the rows could not be written: {error.message}", file=store.uri)


class _Files:
    """The data files of one new fragment: one for each run of the columns' ids."""

    def __init__(self, store: Store | WriteGroup, target: Target, runtime: Runtime) -> None:
        self._target = target
        self._runs = target.runs()
        self.fragment = Fragment(0, tuple(DataFile(f"{runtime.new_id()}.lance", r.field_ids) for r in self._runs))
        self._writers: list[DataFileWriter] = []
        for entry, schema in zip(self.fragment.files, self._runs):
            writer = new_data_file(store, entry.key, schema, target.version, extend_dictionaries=target.extend)
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
        """Publish the files.  Raises ``StorageError``."""
        entries = []
        for writer, entry in zip(self._writers, self.fragment.files):
            done = writer.close()
            entries.append(
                replace(
                    entry,
                    fields=done.field_ids,
                    column_indices=done.column_indices,
                    major_version=done.version[0],
                    minor_version=done.version[1],
                    size_bytes=done.size,
                )
            )
            self._target.wrote(writer.dictionaries)
        return replace(self.fragment, files=tuple(entries), physical_rows=self.num_rows)

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            for writer in self._writers:
                writer.discard()


def write_columns(
    store: Store, batches: Iterable[pa.RecordBatch], target: Target, runtime: Runtime, check: Callable[[int], None]
) -> tuple[DataFile, ...]:
    """Write columns for rows that are there, in a file for each run of ids: its row groups are the stored batches.

    ``check`` is called with the number of rows before the files are published, and raises where that is wrong.
    """
    with _Files(store, target, runtime) as files:
        for batch in batches:
            files.write(batch)
        check(files.num_rows)
        return files.close().files


@contextmanager
def discarded_on_failure(store: Store, written: Iterable[Fragment]) -> Iterator[None]:
    """Removes new files where the block fails to commit them, unless they may be those of a version."""
    try:
        yield
    except UnknownOutcomeError:
        raise
    except TrilakeError:
        discard(store, written)
        raise


def discard(store: Store, fragments: Iterable[Fragment]) -> None:
    """Remove the data files of fragments that no version names."""
    keys = [f.key for fragment in fragments for f in fragment.files]
    with suppress(TrilakeError, OSError):  # why the write failed is the error to show; a clean-up removes the rest
        store.delete(keys)
