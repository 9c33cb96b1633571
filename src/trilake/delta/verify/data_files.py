"""Checks of data files and deletion vectors: they exist, can be read, and have the stated sizes and counts."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.scan.read import locate
from trilake.delta.scan.statistics import record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.errors import CorruptFileError, ObjectNotFoundError, TrilakeError
from trilake.parquet.files import DAMAGE, checked_footer, open_parquet
from trilake.storage.base import Store
from trilake.table.findings import Finding, unreadable

#: Files checked concurrently.
_THREADS = 16
#: The repair steps for missing files, damaged files, and wrong statistics.
DROP_MISSING, DROP_DAMAGED = "delta.drop-missing-files", "delta.drop-damaged-files"
RECOMPUTE = "delta.recompute-statistics"
#: Help for a damaged or missing file.
DAMAGED_HELP = (
    "restore the file from a backup; or remove the file from the table, which loses its rows (trilake.repair with"
    " accept_loss)"
)


@dataclass(frozen=True)
class StoredFile:
    """A file in the store: ``size`` and, if the footer was read, ``rows``; or the error."""

    size: int | None = None
    rows: int | None = None
    error: Exception | None = None

    @property
    def damaged(self) -> bool:
        """Whether the file exists but is not valid Parquet; a failing store does not count."""
        lacking = isinstance(self.error, pa.ArrowNotImplementedError)
        return self.error is not None and not lacking and self.size is not None and self.size >= 0


def stored_files(table: DeltaContext) -> list[StoredFile]:
    """The stored files of the version, in order; read once."""
    return table.once(_look_up)


def _look_up(table: DeltaContext) -> list[StoredFile]:
    files: list[str] = table.adds["file"].to_pylist()
    parquet = table.snapshot.metadata.provider.lower() == "parquet"
    with ThreadPoolExecutor(min(_THREADS, max(1, len(files))), "trilake-verify") as pool:
        return list(pool.map(_stored_file, repeat(table.store), files, repeat(parquet)))


def _stored_file(store: Store, file: str, parquet: bool) -> StoredFile:
    try:
        place, key = locate(store, file)
        if not parquet:
            return StoredFile(place.head(key).size)
        with place.open_input(key) as source:
            size = source.size()
            try:
                parquet_file = open_parquet(source)
                checked_footer(source, parquet_file)
                return StoredFile(size, parquet_file.metadata.num_rows)
            except (*DAMAGE, OSError, CorruptFileError) as e:
                # Arrow raises OSError for undecodable bytes, but only errors of the system have a number.
                return StoredFile(size if getattr(e, "errno", None) is None else -1, error=e)
    except ObjectNotFoundError:
        return StoredFile()
    except (TrilakeError, OSError) as e:
        return StoredFile(-1, error=e)


def _column(values: Iterable[int | None]) -> pa.Array:
    return pa.array(list(values), pa.int64())


def present(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every file of the version exists."""
    missing = pc.is_null(_column(o.size for o in stored_files(table)))
    message = "a data file of the version is missing, so its rows cannot be read"
    yield from table.of_files(missing, "delta.file-missing", message, DAMAGED_HELP, repair=DROP_MISSING)
    return table.file_count


def sized(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every file has the size that the log states."""
    files = zip(stored_files(table), table.adds["size"].to_pylist(), strict=True)
    for number, (stored, size) in enumerate(files):
        if stored.size is None or size is None or stored.size in (size, -1):
            continue
        yield table.finding(
            "delta.file-size",
            f"the file has {stored.size:,} bytes, but the log says {size:,}: the file was truncated or replaced",
            DAMAGED_HELP if stored.damaged else "restore the file from a backup",
            file=table.adds["file"][number].as_py(),
            repair=DROP_DAMAGED if stored.damaged else None,
        )
    return table.file_count


def readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every file can be opened and its footer read."""
    wrong = [(i, o, o.error) for i, o in enumerate(stored_files(table)) if o.error is not None]
    for number, stored, error in wrong:
        file = table.adds["file"][number].as_py()
        failure = unreadable("delta.file-unreadable", error, file=file, version=table.version)
        help, repair = (DAMAGED_HELP, DROP_DAMAGED) if stored.damaged else ("restore the file from a backup", None)
        yield replace(failure, help=help, column=None, repair=repair)
    return table.file_count


def counted(table: DeltaContext) -> Generator[Finding, None, int]:
    """The statistics state the number of rows that the file has."""
    true = _column(o.rows for o in stored_files(table))
    counts = record_counts(table.adds, table.engine.query)
    wrong = pc.fill_null(pc.not_equal(true, counts), False)
    for number in np.flatnonzero(np.asarray(wrong)).tolist():
        yield table.finding(
            "delta.statistics-num-records",
            f"the statistics say {counts[number].as_py():,} rows, but the file has {true[number].as_py():,}",
            "recompute the statistics (trilake.repair): counts and data skipping use them",
            file=table.adds["file"][number].as_py(),
            repair=RECOMPUTE,
        )
    return int(len(true) - true.null_count)


# --- deletion vectors ------------------------------------------------------------------------------------------------

_VECTOR_HELP = (
    "restore the file of the deletion vector, or a version of the table without it: otherwise reads would miss rows"
    " or return deleted ones"
)


@dataclass(frozen=True)
class Loaded:
    """One vector: how many rows it deletes and which one is the last, or the error."""

    file: str
    stated: int
    rows: int | None
    count: int = 0
    last: int = -1
    error: Exception | None = None


def _loaded(table: DeltaContext) -> list[Loaded]:
    adds = table.adds
    has = pc.is_valid(pc.struct_field(adds["deletionVector"], "storageType"))
    files = adds.filter(has)
    counts: list[int | None] = record_counts(files, table.engine.query).to_pylist()
    if table.depth != "log":
        true = [o.rows for o, has_vector in zip(stored_files(table), has.to_pylist(), strict=True) if has_vector]
        counts = [t if t is not None else c for t, c in zip(true, counts, strict=True)]
    vectors = [DeletionVectorDescriptor.from_json(v) for v in files["deletionVector"].to_pylist()]
    with ThreadPoolExecutor(min(_THREADS, max(1, len(vectors))), "trilake-verify") as pool:
        return list(pool.map(_load, repeat(table.store), files["file"].to_pylist(), vectors, counts))


def _load(store: Store, file: str, vector: DeletionVectorDescriptor | None, rows: int | None) -> Loaded:
    assert vector is not None
    try:
        bitmap = vector.stored(store)
        return Loaded(file, vector.cardinality, rows, len(bitmap), int(bitmap.max()) if len(bitmap) else -1)
    except (TrilakeError, OSError) as e:
        return Loaded(file, vector.cardinality, rows, error=e)


def vectors_read(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every deletion vector can be read: its file, magic number, size and CRC are right."""
    for vector in table.once(_loaded):
        if vector.error is not None:
            failure = unreadable("delta.deletion-vector-unreadable", vector.error)
            where = {} if failure.file is None else {"vector": failure.file}
            yield table.finding(
                failure.code, failure.message, _VECTOR_HELP, file=vector.file, details={**failure.details, **where}
            )
    return len(table.once(_loaded))


def vectors_count(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every deletion vector deletes as many rows as its cardinality states."""
    for vector in table.once(_loaded):
        if vector.error is None and vector.count != vector.stated:
            yield table.finding(
                "delta.deletion-vector-cardinality",
                f"the deletion vector deletes {vector.count:,} rows, but the log says {vector.stated:,}",
                _VECTOR_HELP,
                file=vector.file,
            )
    return len(table.once(_loaded))


def vectors_inside(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every deletion vector deletes rows that its file has."""
    for vector in table.once(_loaded):
        if vector.rows is not None and vector.last >= vector.rows:
            yield table.finding(
                "delta.deletion-vector-position",
                f"the deletion vector deletes row {vector.last:,} of a file with {vector.rows:,} rows",
                _VECTOR_HELP,
                file=vector.file,
            )
    return len(table.once(_loaded))
