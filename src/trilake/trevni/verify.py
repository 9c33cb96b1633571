"""Verify Trevni files: headers, descriptors, parents, blocks and their checksums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from trilake.errors import SchemaMismatchError, TrilakeError
from trilake.storage import Store, open_store
from trilake.table.findings import MAX_LISTED, Check, Depth, Finding, Findings, run_checks, spread, unreadable
from trilake.table.folders import DataFile
from trilake.trevni.blocks.codecs import BlockChecksumError
from trilake.trevni.blocks.decode import Budget
from trilake.trevni.blocks.layout import BlockTable, ParentError
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.tables.dataset import find_files, list_files

_THREADS = 8
_HELP = "restore the file from a backup, or write it again"
_Findings = Generator[Finding, None, int]
_Results = list[tuple[str, Any]]  # keys of files, and errors or other objects


@dataclass(frozen=True)
class OpenFile:
    """A file, or the error from opening it; the block tables of its columns, or their errors."""

    key: str
    file: TrevniFile | None = None
    error: Exception | None = None
    tables: dict[int, BlockTable] = field(default_factory=dict)
    table_errors: list[Exception] = field(default_factory=list)

    @cached_property
    def schema(self) -> pa.Schema | Exception | None:
        """The schema, or the error from reading it; ``None`` if the file could not be opened."""
        try:
            return None if self.file is None else self.file.schema
        except (TrilakeError, OSError, pa.ArrowException) as e:
            return e


@dataclass(frozen=True)
class BlockFault:
    """A damaged block: an error, or a first value that differs from the descriptor."""

    key: str
    column: str
    block: int
    error: Exception | None = None
    descriptor_value: object = None
    actual_value: object = None


@dataclass(frozen=True)
class TrevniContext:
    """A folder of Trevni files, or one file, to verify; ``sample`` is the number of files to read, ``None`` for all."""

    location: str
    options: Mapping[str, str]
    sample: int | None = None

    @cached_property
    def _store_and_files(self) -> tuple[Store, list[DataFile]]:
        try:
            return find_files(self.location, self.options)
        except SchemaMismatchError:  # partition folders differ, which a check reports: list the folder instead
            store = open_store(self.location, self.options)
            return store, list_files(store)

    @property
    def files(self) -> list[DataFile]:
        """All files.  Raises ``TableNotFoundError`` for a location without files."""
        return self._store_and_files[1]

    @cached_property
    def opened(self) -> list[OpenFile]:
        store = self._store_and_files[0]
        with ThreadPoolExecutor(_THREADS, "trilake-verify") as pool:
            return list(pool.map(lambda f: _open(store, f.key), self.files))

    @cached_property
    def faults(self) -> list[BlockFault | None]:
        """One entry per block of the sampled files, ``None`` if it is sound."""
        chosen = [self.opened[i] for i in spread(len(self.opened), self.sample)]
        return [fault for one in chosen if one.file is not None for fault in _faults(one, one.file)]


def _open(store: Store, key: str) -> OpenFile:
    try:
        opened = OpenFile(key, TrevniFile((store, key)))
    except (TrilakeError, OSError) as e:
        return OpenFile(key, error=e)
    assert opened.file is not None
    for column in opened.file.header.columns:
        try:
            opened.tables[column.number] = opened.file.blocks(column.number)
        except (TrilakeError, OSError) as e:
            opened.table_errors.append(e)
    return opened


def _faults(one: OpenFile, file: TrevniFile) -> Iterator[BlockFault | None]:
    reported: set[tuple[str, int]] = set()
    for number, blocks in one.tables.items():
        column = file.header.columns[number]
        parent = column.parent
        while parent is not None and parent in one.tables:
            parent = file.header.columns[parent].parent
        if parent is not None:
            continue  # another check reports an ancestor without a block table
        for block in range(len(blocks)):
            start, stop = int(blocks.row_starts[block]), int(blocks.row_starts[block + 1])
            try:
                # Reading a child reads its ancestors, whose faults are reported separately.
                cut = file.cut([number], start, stop, Budget.of(file.size, limited=True))[number]
            except (TrilakeError, OSError) as e:
                context = e.context if isinstance(e, TrilakeError) else {}
                place = str(context.get("column", column.label)), int(context.get("block") or 0)
                yield None if place in reported else BlockFault(one.key, *place, e)
                reported.add(place)
                continue
            first = None if blocks.first_values is None or not len(cut.values) else blocks.first_values[block]
            if first is None or cut.values[0].equals(first):
                yield None
            else:
                yield BlockFault(one.key, column.label, block, None, first.as_py(), cut.values[0].as_py())


def _finding(code: str, error: Exception, key: str) -> Finding:
    base = unreadable(code, error)
    context = error.context if isinstance(error, TrilakeError) else {}
    details: dict[str, Any] = {k: context[k] for k in ("block", "offset") if k in context}
    return Finding(code, base.message, _HELP, file=key, column=base.column, details={**base.details, **details})


def _errors(
    code: str,
    promise: str,
    depth: Depth,
    results: Callable[[TrevniContext], _Results],
    kind: Any = Exception,
    but: Any = (),
) -> Check[TrevniContext]:
    """Return a check that reports the errors of one class, except those of another."""

    def run(table: TrevniContext) -> _Findings:
        found = results(table)
        for key, result in found:
            if isinstance(result, kind) and not isinstance(result, but):
                yield _finding(code, result, key)
        return len(found)

    return Check(code, promise, depth, run)


def _opened(table: TrevniContext) -> _Results:
    return [(one.key, one.error) for one in table.opened]


def _tables(table: TrevniContext) -> _Results:
    return [(one.key, result) for one in table.opened for result in (*one.table_errors, *one.tables.values())]


def _schemas(table: TrevniContext) -> _Results:
    return [(one.key, one.schema) for one in table.opened]


def _blocks(table: TrevniContext) -> _Results:
    return [(fault.key, fault.error) if fault else ("", None) for fault in table.faults]


def _folders(table: TrevniContext) -> _Findings:
    names = [tuple(name for name, _ in f.partition) for f in table.files]
    usual = Counter(names).most_common(1)[0][0]
    for file, columns in zip(table.files, names, strict=True):
        if columns != usual:
            yield Finding(
                "trevni.partition-folders-differ",
                f"expected partition folders for {', '.join(usual) or 'no column'}, got {', '.join(columns) or 'none'}",
                "move the file into folders with the same partition columns: readers see nulls for missing ones",
                file=file.key,
            )
    return len(names)


def _same_columns(table: TrevniContext) -> _Findings:
    schemas = [(one.key, one.schema) for one in table.opened if isinstance(one.schema, pa.Schema)]
    for key, schema in schemas[1:]:
        name, first = schemas[0]
        if {f.name: f.type for f in schema} != {f.name: f.type for f in first}:
            other = sorted(
                f.name for f in {*schema, *first} if f.name not in schema.names or f.name not in first.names
            ) or sorted(f.name for f in schema if f.type != first.field(f.name).type)
            yield Finding(
                "trevni.schema-differs",
                f"the file and {name} have different columns: {', '.join(other)[:300]}",
                "readers see nulls in columns that a file lacks; write the files again with one schema",
                severity="warning",
                file=key,
            )
    return len(table.opened)


def _first_values(table: TrevniContext) -> _Findings:
    for fault in table.faults:
        if fault is not None and fault.error is None:
            yield Finding(
                "trevni.first-value-wrong",
                f"the block starts with {fault.actual_value!r:.100}, expected {fault.descriptor_value!r:.100}:"
                " seek and filters would miss rows",
                _HELP,
                file=fault.key,
                column=fault.column,
                details={"block": fault.block},
            )
    return len(table.faults)


CHECKS: tuple[Check[TrevniContext], ...] = (
    Check("trevni.partition-folders-differ", "all files have the same partition columns", "log", _folders),
    _errors("trevni.header-unreadable", "every file has a readable header", "files", _opened, but=ParentError),
    _errors("trevni.parent-wrong", "every parent is an earlier array column", "files", _opened, ParentError),
    _errors("trevni.descriptor-wrong", "block descriptors match the file and its rows", "files", _tables),
    _errors("trevni.schema-wrong", "the schema of a file matches its columns", "files", _schemas),
    Check("trevni.schema-differs", "all files have the same columns", "files", _same_columns),
    _errors("trevni.block-checksum", "every block matches its checksum", "rows", _blocks, BlockChecksumError),
    _errors(
        "trevni.block-unreadable",
        "every block has the expected number of values",
        "rows",
        _blocks,
        but=BlockChecksumError,
    ),
    Check("trevni.first-value-wrong", "block descriptors have the correct first values", "rows", _first_values),
)


def verify_trevni(
    location: str, options: Mapping[str, str], depth: Depth, sample: int | None, limit: int = MAX_LISTED
) -> Findings:
    """Run all checks of Trevni files up to a depth; see :func:`trilake.verify`.  Raises ``TableNotFoundError``."""
    context = TrevniContext(location, options, sample)
    _ = context.files
    findings, runs = run_checks(CHECKS, context, depth, limit)
    return Findings(location, "trevni", None, depth, findings, runs)
