"""What is written: files that no reader sees, read back by whoever wrote them, and made visible by one step at the end.

A target has two halves.  :class:`Rows` travels to tasks: it writes rows into files and reads those files back.
:class:`Target` stays where the conversion was called: it makes files of all tasks a version, or gives them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from trilake.conversion import columns, parquet
from trilake.conversion.sources import PARQUET, LancePiece, Source, format_at
from trilake.delta.commands.write.request import WriteRequest, parse_mode
from trilake.delta.commands.write.write import finish_write, plan_write
from trilake.delta.engine import Engine
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Metadata
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import FileTask, metadata_plan
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TrilakeError
from trilake.runtime import Runtime
from trilake.storage.base import Store
from trilake.storage.ownership import check_own, discard
from trilake.trevni.tables.dataset import DataFile, Split, partition_fields, read_split
from trilake.trevni.tables.table_write import finish_table_write, give_up, plan_table_write, write_options, write_rows

if TYPE_CHECKING:
    from trilake.lance.commands.fragment_writer import WriteOptions as LanceOptions
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.versions.manifest import Fragment
    from trilake.trevni.tables.row_groups import StagedFile
    from trilake.trevni.tables.table_write import TableWritePlan

_T = pa.types


class Rows(Protocol):
    """The half of a target that tasks have."""

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> Any:
        """Write rows into files that nobody sees yet; what names them can be pickled."""

    def read_back(self, written: Any) -> Iterator[pa.RecordBatch]:
        """The rows of such files, in the source's columns."""


@dataclass(frozen=True)
class Done:
    """What there is after the commit."""

    version: int | None
    files: int
    bytes: int


class Target(Protocol):
    """The half of a target that stays."""

    @property
    def rows(self) -> Rows:
        """The half that travels."""

    @property
    def exact(self) -> bool:
        """Whether the rows that were read must be those that are read back."""

    def commit(self, written: Sequence[Any]) -> Done:
        """Make the files of all tasks visible."""

    def discard(self, written: Sequence[Any]) -> None:
        """Remove the files of tasks, which nobody has seen."""


@dataclass(frozen=True)
class TargetRequest:
    """What is asked of a target."""

    format: str
    mode: str
    partition_by: tuple[str, ...] | None
    options: Mapping[str, str]
    data_format: str | None
    #: Whether tasks write that cannot tell each other anything.
    distributed: bool
    #: Formats of files, what follows a commit, and clock and ids.
    engine: Engine


def begin(store: Store, source: Source, request: TargetRequest) -> Target:
    """Look at what is there, and whether it can take the rows; nothing is written.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``InvalidArgumentError`` and ``UnsupportedProtocolError``.
    """
    if request.mode not in ("error", "append", "overwrite"):
        raise InvalidArgumentError(f"mode {request.mode!r} is unknown", help="modes are append, error, overwrite")
    if request.data_format is not None and request.format != "delta":
        raise InvalidArgumentError("data_format is the format of a Delta table's files", help="leave it out")
    unknown = [c for c in request.partition_by or () if c not in source.schema.names]
    if unknown:
        raise InvalidArgumentError(
            f"partition_by names {', '.join(map(repr, unknown))}, which is no column of the rows",
            help=f"the columns are {', '.join(source.schema.names)}",
        )
    there = format_at(store)
    if there is not None and there != request.format:
        raise TableExistsError(
            f"{there} files are there",
            help="convert to another location, or remove them if a write that failed has left them",
            file=store.uri,
        )
    return _MAKE[request.format](store, source, request, there is not None)


def _kept_partitions(source: Source, request: TargetRequest, exists: bool) -> tuple[str, ...] | None:
    """Columns for folders whose names are all that is left of them: those that are read as they were."""
    if request.partition_by is not None:
        return request.partition_by
    if exists and request.mode == "append":
        return None
    types = [source.schema.field(n).type for n in source.partition_by]
    plain = all(_T.is_integer(t) or _T.is_string(t) or _T.is_date32(t) for t in types)
    return source.partition_by if plain and len(types) < len(source.schema) else ()


# --- Delta -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeltaRows:
    """Files of a Delta table."""

    store: Store
    plan: FilePlan
    metadata: Metadata
    schema: pa.Schema
    names: tuple[str, ...]

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
        return write_files(self.store, self.plan, (columns.plain(b, self.schema) for b in batches), task=task)

    def read_back(self, written: WrittenFiles) -> Iterator[pa.RecordBatch]:
        plan = metadata_plan(self.metadata, self.plan.engine, self.store.uri, 0, self.names)
        tasks = [FileTask(unquote(str(a["path"])), int(a["size"]), a["partitionValues"]) for a in written.actions]
        for batch in read_tasks(self.store, tasks, plan):
            yield batch.rename_columns(list(self.names))


class DeltaTarget:
    """A Delta table: one commit."""

    exact = True

    def __init__(self, log: DeltaLog, request: WriteRequest, schema: pa.Schema) -> None:
        self.log = log
        self.plan = plan_write(log, request)
        if self.plan.files.provider == "parquet":
            columns.for_parquet(self.plan.files.schema.to_arrow_schema())
        self.rows = DeltaRows(log.store, self.plan.files, self.plan.metadata, schema, tuple(schema.names))

    def commit(self, written: Sequence[WrittenFiles]) -> Done:
        done = finish_write(self.log, self.plan, written)
        return Done(done.version, done.files_added, done.bytes_added)

    def discard(self, written: Sequence[WrittenFiles]) -> None:
        discard(self.log.store, [unquote(str(a["path"])) for part in written for a in part.actions])


def _delta(store: Store, source: Source, request: TargetRequest, exists: bool) -> DeltaTarget:
    schema = columns.for_delta(source.schema)
    partition_by = request.partition_by
    if partition_by is None and not exists and len(source.partition_by) < len(source.schema):
        partition_by = source.partition_by
    write = WriteRequest(
        mode=parse_mode(request.mode),
        schema=columns.to_delta(schema),
        partition_by=partition_by,
        properties=request.options or None,
        data_format=request.data_format,
    )
    return DeltaTarget(DeltaLog(store, request.engine), write, schema)


# --- Lance -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanceRows:
    """Fragments of a Lance dataset."""

    store: Store
    schema: LanceSchema
    source_schema: pa.Schema
    options: LanceOptions
    #: Whether the fragments' dictionaries may grow: they are the dataset's, so only one task may do that.
    extend: bool
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[Fragment], LanceSchema]:
        from trilake.lance.commands.fragment_writer import Target as Stored
        from trilake.lance.commands.fragment_writer import write_fragments

        target = Stored(self.schema, nulls=self.options.nulls, extend=self.extend)
        exact = self.options.nulls != "zero"
        plain = (columns.plain(batch, self.source_schema) for batch in batches)
        checked = (self._checked(target, batch) if exact else batch for batch in plain)
        fragments = write_fragments(self.store, checked, target, self.options, self.runtime)
        return fragments, target.schema

    def _checked(self, target: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, if no empty text in it would be read as null."""
        for field in target.view.schema.fields:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                continue
            path = _lost_empty(field.storage_field, batch.column(at), hidden=target.view.has_mask(field.name))
            if path is not None:
                top = path == field.name
                raise SchemaMismatchError(
                    "an empty value would be read back as null, which is what Lance stores for a nullable text",
                    help='pass options={"nulls": "mask"} for a new dataset' if top else "fill the empty values",
                    column=path,
                )
        return batch

    def read_back(self, written: tuple[list[Fragment], LanceSchema]) -> Iterator[pa.RecordBatch]:
        fragments, schema = written
        return LancePiece(self.store, tuple(fragments), schema, self.names, None).batches()


def _lost_empty(field: pa.Field, array: pa.Array, *, hidden: bool = False) -> str | None:
    """The path of a nullable text or binary in which there is an empty value.

    ``hidden``: nulls of the field itself are kept elsewhere.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _lost_empty(field, array.storage, hidden=hidden)
    below: list[tuple[pa.Field, pa.Array]] = []
    if _T.is_struct(field.type) and _T.is_struct(kind):
        children = {f.name: child for f, child in zip(kind, array.flatten())}
        below = [(f, children[f.name]) for f in field.type if f.name in children]
    elif hasattr(field.type, "value_field") and hasattr(kind, "value_field"):
        below = [(field.type.value_field, array.flatten())]
    for child, values in below:
        path = _lost_empty(child, values)
        if path is not None:
            return f"{field.name}.{path}"
    if hidden or not field.nullable:
        return None
    texts = _T.is_string(field.type) or _T.is_large_string(field.type)
    if not (texts or _T.is_binary(field.type) or _T.is_large_binary(field.type)):
        return None
    if _T.is_dictionary(kind):
        array = array.dictionary_decode()
    elif not (_T.is_string(kind) or _T.is_binary(kind) or _T.is_large_string(kind) or _T.is_large_binary(kind)):
        array = array.cast(field.type)
    return field.name if pc.any(pc.equal(pc.binary_length(array), 0)).as_py() else None


class LanceTarget:
    """A Lance dataset: one version."""

    def __init__(
        self,
        store: Store,
        mode: str,
        options: LanceOptions,
        schema: pa.Schema,
        *,
        distributed: bool,
        runtime: Runtime,
    ) -> None:
        from trilake.lance.commands.write import plan_write as plan_dataset

        self.store = store
        kind: Any = {"error": "create"}.get(mode, mode)
        self.plan = plan_dataset(store, kind, runtime, options)
        target = self.plan.target(schema)
        have = set(target.view.schema.names)
        if set(schema.names) != have:
            raise SchemaMismatchError(
                f"the rows have the columns {', '.join(schema.names)}, the dataset has {', '.join(sorted(have))}",
                help="choose columns=[…] as the dataset has them",
                file=store.uri,
            )
        self.exact = options.nulls != "zero"
        self.options = options
        extend = target.extend and not distributed
        self.rows = LanceRows(store, target.schema, schema, options, extend, tuple(schema.names), self.plan.runtime)

    def commit(self, written: Sequence[tuple[list[Fragment], LanceSchema]]) -> Done:
        from trilake.lance.commands.fragment_writer import Target as Stored
        from trilake.lance.commands.write import commit_write

        fragments = [f for some, _ in written for f in some]
        # With the dictionaries of the one task that may have added to them.
        schema = written[0][1] if len(written) == 1 else self.rows.schema
        target = Stored(schema, nulls=self.options.nulls, extend=self.rows.extend)
        size = sum(self.store.head(e.key).size for f in fragments for e in f.files)
        snapshot = commit_write(self.store, self.plan, target, fragments)
        return Done(snapshot.version, sum(len(f.files) for f in fragments), size)

    def discard(self, written: Sequence[tuple[list[Fragment], LanceSchema]]) -> None:
        from trilake.lance.commands.fragment_writer import discard

        for fragments, _ in written:
            discard(self.store, fragments)


def _lance(store: Store, source: Source, request: TargetRequest, exists: bool) -> LanceTarget:
    from trilake.lance.table import write_options

    if request.partition_by:
        raise InvalidArgumentError("Lance datasets have no partitions", help="leave partition_by out")
    schema = columns.for_lance(source.schema, dictionaries=not request.distributed)
    options, runtime = write_options(request.options), request.engine.runtime
    return LanceTarget(store, request.mode, options, schema, distributed=request.distributed, runtime=runtime)


# --- Trevni ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrevniRows:
    """Staged files of a Trevni table."""

    store: Store
    plan: TableWritePlan
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> list[StagedFile]:
        return write_rows(self.store, self.plan, batches, task=f"{task:05d}", attempt=self.runtime.new_attempt())

    def read_back(self, written: list[StagedFile]) -> Iterator[pa.RecordBatch]:
        files = [(f, parquet.data_file(f.key, f.size)) for f in written]
        own = {name.lower(): self.plan.schema.field(name) for name in self.plan.schema.names}
        # Partition columns are read as anybody would who has only the folders' names.
        own.update({f.name.lower(): f for f in partition_fields([d for _, d in files])})
        schema = pa.schema([own[name.lower()].with_nullable(True) for name in self.names])
        options = dict(self.store.options)
        for staged, file in files:
            split = Split(self.store.uri, staged.staged, file.partition, options=options)
            for batch in read_split(split, schema):
                yield batch.rename_columns(list(self.names))


class TrevniTarget:
    """A folder of Trevni files: all are seen at once, see ``docs/internals/trevni.md``."""

    exact = True

    def __init__(self, store: Store, plan: TableWritePlan, names: Sequence[str], runtime: Runtime) -> None:
        self.store, self.plan = store, plan
        self.rows = TrevniRows(store, plan, tuple(names), runtime)

    def commit(self, written: Sequence[list[StagedFile]]) -> Done:

        done = finish_table_write(self.store, self.plan, [f for some in written for f in some])
        return Done(None, done.files_added, done.bytes_added)

    def discard(self, written: Sequence[list[StagedFile]]) -> None:
        give_up(self.store, self.plan)


def _trevni(store: Store, source: Source, request: TargetRequest, exists: bool) -> TrevniTarget:
    schema = columns.for_trevni(source.schema)
    plan = plan_table_write(
        store,
        schema,
        mode=request.mode,
        partition_by=_kept_partitions(source, request, exists),
        options=write_options(request.options),
        runtime=request.engine.runtime,
    )
    return TrevniTarget(store, plan, schema.names, request.engine.runtime)


# --- Parquet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetRows:
    """Staged files of a folder."""

    store: Store
    job: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    options: parquet.ParquetOptions
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> list[parquet.StagedParquet]:
        attempt, by = self.runtime.new_attempt(), self.partition_by
        with parquet.ParquetFiles(self.store, self.job, task, attempt, self.schema, by, self.options) as files:
            for batch in batches:
                files.write(columns.fitted(batch, self.schema))
        return files.done

    def read_back(self, written: list[parquet.StagedParquet]) -> Iterator[pa.RecordBatch]:
        data_files = [parquet.data_file(f.key, f.size) for f in written]
        types = {f.name: f for f in partition_fields(data_files)}
        schema = pa.schema([types.get(f.name, f).with_nullable(True) for f in self.schema])
        files = [DataFile(s.staged, s.size, f.partition) for s, f in zip(written, data_files, strict=True)]
        return parquet.read_files(self.store, files, schema, self.names, None)


class ParquetTarget:
    """A folder of Parquet files: ``_SUCCESS`` comes last."""

    exact = True

    def __init__(self, store: Store, rows: ParquetRows, old: Sequence[str]) -> None:
        self.store, self.rows, self.old = store, rows, old

    def commit(self, written: Sequence[list[parquet.StagedParquet]]) -> Done:
        files = [f for some in written for f in some]
        parquet.publish(self.store, self.rows.job, files, self.old)
        return Done(None, len(files), sum(f.size for f in files))

    def discard(self, written: Sequence[list[parquet.StagedParquet]]) -> None:
        with suppress(TrilakeError, OSError):  # why the conversion failed is the error to show
            parquet.clean(self.store, self.rows.job)


def _parquet(store: Store, source: Source, request: TargetRequest, exists: bool) -> ParquetTarget:
    if exists and request.mode == "error":
        raise TableExistsError("Parquet files are there already", file=store.uri)
    schema = columns.for_parquet(source.schema)
    partition_by = _kept_partitions(source, request, exists)
    old: list[str] = []
    if exists:
        folder = parquet.ParquetFolder.open(store)
        if folder.store.uri != store.uri:
            raise TableExistsError("a file is there, and no folder", help="name a folder", file=store.uri)
        if request.mode == "append":
            partition_by, schema = _appended(folder, partition_by, schema)
        else:
            old = [f.key for f in folder.files]
            check_own(store, old, what="the overwrite")
    if len(partition_by or ()) == len(schema):
        raise InvalidArgumentError("a table must have a column that it is not partitioned by")
    options = parquet.ParquetOptions.of(request.options)
    runtime, names = request.engine.runtime, tuple(source.schema.names)
    job = runtime.new_hex_id()
    rows = ParquetRows(store, job, schema, tuple(partition_by or ()), options, names, runtime)
    return ParquetTarget(store, rows, old)


def _appended(
    folder: parquet.ParquetFolder, partition_by: tuple[str, ...] | None, schema: pa.Schema
) -> tuple[tuple[str, ...], pa.Schema]:
    """How rows are added to a folder: in its columns, under its partitions.  Raises ``SchemaMismatchError``."""
    have = folder.schema
    own = tuple(f.name for f in folder.partitions)
    if partition_by is not None and tuple(partition_by) != own:
        raise SchemaMismatchError(
            f"the folder is partitioned by {list(own)}, the write by {list(partition_by)}",
            help="leave partition_by out",
            file=folder.store.uri,
        )
    wrong = sorted(set(schema.names) ^ set(have.names))
    if wrong:
        raise SchemaMismatchError(
            f"the rows and the folder do not both have {', '.join(wrong)}",
            help="choose columns=[…] as the folder has them",
            file=folder.store.uri,
            column=wrong[0],
        )
    fields = [schema.field(f.name) if f.name in own else f.with_nullable(True) for f in have]
    return own, pa.schema(fields, have.metadata)


_MAKE: dict[str, Callable[[Store, Source, TargetRequest, bool], Target]] = {
    "delta": _delta,
    "lance": _lance,
    "trevni": _trevni,
    PARQUET: _parquet,
}
