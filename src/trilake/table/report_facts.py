"""``Facts``: the data of a report, as plain values and Arrow columns, whatever the format.

Each format collects them; charts, advice and the page are functions of them.  Facts that a format lacks are ``None``,
and left out of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Columns of :attr:`Facts.files`; ``deleted`` are rows deleted by a deletion vector.
FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("deleted", pa.int64())])
#: Columns of :attr:`Facts.commits`, newest first.
COMMITS = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("by", pa.string()),
        ("metrics", pa.string()),
    ]
)
#: Columns of :attr:`Facts.transactions`.
TRANSACTIONS = pa.schema(
    [("application", pa.string()), ("version", pa.int64()), ("updated", pa.timestamp("ms", "UTC"))]
)


@dataclass(frozen=True)
class Commits:
    """The versions, newest first (:data:`COMMITS`), and how many older ones were not read."""

    table: pa.Table
    unread: int = 0
    #: All readable versions, including the unread ones.
    total: int = 0


@dataclass(frozen=True)
class PartitionColumn:
    """A partition column, and its value in each file as a string or null."""

    name: str
    values: pa.ChunkedArray


@dataclass(frozen=True)
class Tombstones:
    """Removed files that may still be in the table's folder; sizes in bytes.

    ``expired`` are those removed longer ago than the retention: VACUUM may delete them.
    """

    files: int = 0
    size: int = 0
    expired_files: int = 0
    expired_size: int = 0
    retention: str = ""
    #: Tombstones without a file size.
    unsized: int = 0


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of a column in each file, as ranks.

    ``low`` and ``high`` are ranks among all bounds of the column, in value order.  ``unknown`` counts files without
    bounds that may hold any value; files with only nulls are left out.
    """

    name: str
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    unknown: int = 0
    least: str | None = None
    greatest: str | None = None
    #: The column's name in commands, quoted where needed.
    reference: str = ""


@dataclass(frozen=True)
class Bounds:
    """Bounds of some columns in ``sampled`` of the ``files`` of a table; ``left_out`` columns were not read."""

    columns: tuple[ColumnBounds, ...]
    files: int
    sampled: int
    left_out: int = 0
    unit: str = "file"


@dataclass(frozen=True)
class Storage:
    """Bytes of each column in ``sampled`` of the ``files`` of a table, and how many files could not be read."""

    columns: Mapping[str, int]
    files: int
    sampled: int
    unreadable: int = 0
    unit: str = "file"

    @classmethod
    def measured(cls, files: int, parts: Iterable[Mapping[str, float] | None], unit: str = "file") -> Storage:
        """Add up the bytes of the columns of some files; ``None`` is a file that could not be read."""
        columns: dict[str, float] = {}
        readable = unreadable = 0
        for sizes in parts:
            readable, unreadable = readable + (sizes is not None), unreadable + (sizes is None)
            for name, size in (sizes or {}).items():
                columns[name] = columns.get(name, 0) + size
        return cls({name: int(size) for name, size in columns.items()}, files, readable, unreadable, unit)


@dataclass(frozen=True)
class SchemaChange:
    """The column changes of one version; ``time`` is an ISO string."""

    version: int
    time: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Compaction:
    """The estimate of a compaction: ``files`` of ``size`` bytes would become ``into`` files."""

    files: int
    into: int
    size: int
    #: The size below which files are compacted, as a string.
    limit: str


@dataclass(frozen=True)
class Verified:
    """The result of ``verify``: rows of severity, code, message, place and remedy, and the number of checks."""

    rows: tuple[tuple[str, str, str, str, str], ...]
    checks: int
    #: Checks that could not run, with the reason.
    skipped: tuple[tuple[str, str], ...] = ()
    #: Findings that are not listed.
    more: int = 0


@dataclass(frozen=True)
class Facts:
    """All facts of a report."""

    format: str
    uri: str
    version: int | None
    schema: pa.Schema
    files: pa.Table
    now_ms: int
    description: str | None = None
    commits: Commits | None = None
    partitions: tuple[PartitionColumn, ...] = ()
    tombstones: Tombstones | None = None
    bounds: Bounds | None = None
    storage: Storage | None = None
    schema_changes: tuple[SchemaChange, ...] | None = None
    transactions: pa.Table | None = None
    compaction: Compaction | None = None
    has_vectors: bool = False
    clustering: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    protocol: str | None = None
    indices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    findings: Verified | None = None
    #: The format's word for a data file, in the singular.
    unit: str = "file"
    #: Python code by purpose: ``compact``, ``purge``, ``vacuum``, ``clean``, ``order``.  ``{uri!r}`` and ``{column!r}``
    #: stand for the table and a column.
    commands: Mapping[str, str] = field(default_factory=dict)


def ranked(
    name: str, low: pa.ChunkedArray, high: pa.ChunkedArray, nulls_only: pa.ChunkedArray, reference: str | None = None
) -> ColumnBounds | None:
    """The bounds of a column as ranks; ``None`` where no file has any.

    Parameters
    ----------
    low, high: bounds of each file, null where unknown.
    nulls_only: whether each file is known to hold only nulls.
    reference: the column's name in commands, if it differs.
    """
    has_bounds = pc.and_(pc.is_valid(low), pc.is_valid(high))
    unknown = pc.sum(pc.and_not(pc.invert(has_bounds), pc.fill_null(nulls_only, False))).as_py() or 0
    low, high = low.filter(has_bounds), high.filter(has_bounds)
    if not len(low):
        return None
    ends = pc.min_max(low)["min"].as_py(), pc.min_max(high)["max"].as_py()
    both = pa.concat_arrays([c for a in (low, high) for c in a.chunks])
    ranks = pc.rank(both, tiebreaker="dense").to_numpy().astype(np.int64)
    first, last = ranks[: len(low)], ranks[len(low) :]
    # Contradictory bounds are ignored.
    sound = first <= last
    unknown += int((~sound).sum())
    if not sound.any():
        return None
    return ColumnBounds(name, first[sound], last[sound], unknown, str(ends[0]), str(ends[1]), reference or name)
