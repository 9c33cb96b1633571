"""How a stream sees commits: the files that each commit adds, and the commits that end the stream.

Files form *units* in stream order, one row each with ``version``, ``index``, ``count`` (of files) and ``size`` (bytes).
Each file of new rows is a unit; its index counts the files with ``dataChange`` in the same commit.  In a change feed a
whole commit is one unit, because an update must not be split.  Commits that only rearrange rows have no units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commit.conflicts import changing_rows
from trilake.delta.log.snapshot import decoded_paths
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol, empty_actions
from trilake.delta.protocol.features import check_readable
from trilake.delta.protocol.property_values import is_on
from trilake.delta.scan.scan import FileTask, file_tasks
from trilake.delta.stream.errors import StreamRowsChangedError
from trilake.delta.stream.offset import BASE_INDEX, Integers
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.errors import ChangeFeedError, InvalidArgumentError, TrilakeError, UnsupportedProtocolError

#: The fields of a file that a read needs.
FILE_COLUMNS = ("path", "partitionValues", "size", "deletionVector")
Mask = np.ndarray[Any, np.dtype[np.bool_]]
_CHANGE_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class Units:
    """Units in stream order; ``files`` holds the ``add`` action of each, and is ``None`` in a change feed."""

    version: Integers
    index: Integers
    count: Integers
    size: Integers
    files: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.version)

    def tasks(self) -> list[FileTask]:
        """The files of the units, as tasks."""
        assert self.files is not None
        return file_tasks(self.files)

    def slice(self, start: int, stop: int) -> Units:
        files = None if self.files is None else self.files.slice(start, stop - start)
        part = slice(start, stop)
        return Units(self.version[part], self.index[part], self.count[part], self.size[part], files)

    def without(self, mask: Mask) -> Units:
        """The units that ``mask`` does not select."""
        keep = ~mask
        files = None if self.files is None else self.files.filter(pa.array(keep))
        return Units(self.version[keep], self.index[keep], self.count[keep], self.size[keep], files)

    def after(self, version: int, index: int) -> Units:
        """The units after a position."""
        return self.slice(self._position(version, index), len(self))

    def until(self, version: int, index: int) -> Units:
        """The units up to a position, inclusive."""
        return self.slice(0, self._position(version, index))

    def _position(self, version: int, index: int) -> int:
        lo, hi = np.searchsorted(self.version, [version, version + 1])
        return int(lo + np.searchsorted(self.index[lo:hi], index, side="right"))

    def __add__(self, other: Units) -> Units:
        files = None
        if self.files is not None and other.files is not None:
            files = pa.concat_tables([self.files, other.files])
        return Units(
            np.concatenate([self.version, other.version]),
            np.concatenate([self.index, other.index]),
            np.concatenate([self.count, other.count]),
            np.concatenate([self.size, other.size]),
            files,
        )


@dataclass(frozen=True)
class Tail:
    """The commits ``first`` to ``last`` as units.

    ``stop`` is the reason why the stream cannot go past ``last``.  If the stream cannot even read ``first``, ``last``
    is ``first - 1``.
    """

    first: int
    last: int
    units: Units
    stop: TrilakeError | None = None

    def then(self, other: Tail) -> Tail:
        """This tail, continued by ``other``, which holds the commits after it."""
        return Tail(self.first, other.last, self.units + other.units, other.stop)

    def since(self, version: int) -> Tail:
        """This tail without the commits before a version."""
        return replace(self, first=version, units=self.units.after(version, BASE_INDEX))


def tail_of(batch: ActionBatch, versions: Sequence[int], options: StreamOptions, reading: Reading, *, uri: str) -> Tail:
    """The commits in ``batch`` as units; ``versions`` are their contiguous versions."""
    stops = _unreadable(batch, options, reading, uri)
    adds, removes = changing_rows(batch.add), changing_rows(batch.remove)
    if not options.read_change_feed:
        stops += _rows_changed(adds, removes, options, uri)
    first, last, stop = versions[0], versions[-1], None
    if stops:
        version, stop = min(stops, key=lambda s: s[0])
        last = version - 1
        adds, removes = (t.filter(pc.less_equal(t["version"], last)) for t in (adds, removes))
    if options.read_change_feed:
        cdc = batch.cdc.filter(pc.less_equal(batch.cdc["version"], last))
        return Tail(first, last, _change_units(cdc, adds, removes), stop)
    units = file_units(adds, _numbers(adds, "version"), _numbered(_numbers(adds, "version")), exclude=options.exclude)
    if options.skip_change_commits and removes.num_rows:
        units = units.without(np.isin(units.version, _numbers(removes, "version")))
    return Tail(first, last, units, stop)


def snapshot_units(adds: pa.Table, version: int, options: StreamOptions) -> Units:
    """The files of a snapshot by time and path, an order that every reader of the version reproduces."""
    order = pc.sort_indices(adds, sort_keys=[("modificationTime", "ascending"), ("path", "ascending")])
    files = adds.select(list(FILE_COLUMNS)).take(order)
    count = files.num_rows
    return file_units(files, np.full(count, version, np.int64), np.arange(count), exclude=options.exclude)


def empty_units(options: StreamOptions) -> Units:
    """A result without units."""
    none, files = np.zeros(0, np.int64), empty_actions("add").select(list(FILE_COLUMNS))
    return Units(none, none, none, none, None if options.read_change_feed else files)


def file_units(files: pa.Table, versions: Integers, indexes: Integers, *, exclude: str | None = None) -> Units:
    """One unit per file.  Raises ``InvalidArgumentError`` for an ``exclude`` that is not a regular expression."""
    sizes = pc.fill_null(files["size"], 0).to_numpy()
    units = Units(versions, indexes, np.ones(len(sizes), np.int64), sizes, files.select(list(FILE_COLUMNS)))
    if exclude is None:
        return units
    return units.without(excluded_paths(decoded_paths(files["path"]), exclude).to_numpy())


def excluded_paths(paths: pa.ChunkedArray, exclude: str) -> pa.ChunkedArray:
    """Which decoded paths match a regular expression.  Raises ``InvalidArgumentError``."""
    try:
        return pc.match_substring_regex(paths, exclude)
    except pa.ArrowInvalid as e:
        raise InvalidArgumentError(
            f"option excludeRegex is not a valid regular expression: {exclude!r}: {e}",
            help="use RE2 syntax, which has no lookarounds or backreferences",
            condition="DELTA_REGEX_OPT_SYNTAX_ERROR",
        ) from e


def _numbers(actions: pa.Table, column: str) -> Integers:
    numbers: Integers = pc.fill_null(actions[column], 0).to_numpy()
    return numbers


def _numbered(versions: Integers) -> Integers:
    if not len(versions):
        return versions
    starts = np.flatnonzero(np.diff(versions, prepend=versions[0] - 1))
    lengths = np.diff(np.append(starts, len(versions)))
    numbers: Integers = np.arange(len(versions)) - np.repeat(starts, lengths)
    return numbers


def _unreadable(
    batch: ActionBatch, options: StreamOptions, reading: Reading, uri: str
) -> list[tuple[int, TrilakeError]]:
    stops: list[tuple[int, TrilakeError]] = []
    for version, data in batch.of("protocol"):
        try:
            check_readable(Protocol.from_json(data, version=version), uri=uri, version=version)
        except UnsupportedProtocolError as e:
            stops.append((version, e))
    for version, data in batch.of("metaData"):
        metadata = Metadata.from_json(data, version=version)
        problem = reading.check(metadata, version, uri=uri) or feed_problem(metadata, version, options, uri=uri)
        if problem is not None:
            stops.append((version, problem))
    return stops


def feed_problem(metadata: Metadata, version: int, options: StreamOptions, *, uri: str) -> TrilakeError | None:
    """Why the change feed cannot be read from ``version`` on; ``None`` if it can, or is not requested."""
    if not options.read_change_feed or is_on(metadata.configuration, _CHANGE_FEED):
        return None
    return ChangeFeedError(
        f"the change data feed is not recorded from version {version} on",
        help=f"set the table property {_CHANGE_FEED}=true before the changes you want to read, and start a query"
        " with a new checkpoint after the gap",
        file=uri,
        version=version,
        condition="DELTA_MISSING_CHANGE_DATA",
    )


def _rows_changed(
    adds: pa.Table, removes: pa.Table, options: StreamOptions, uri: str
) -> list[tuple[int, TrilakeError]]:
    """The first commit that removed rows, unless the options allow it."""
    if options.skip_change_commits or options.ignore_changes or not removes.num_rows:
        return []
    versions = np.unique(_numbers(removes, "version"))
    replaced = np.isin(versions, _numbers(adds, "version"))
    wrong = versions[replaced] if options.ignore_deletes else versions
    if not len(wrong):
        return []
    version = int(wrong[0])
    example = removes.filter(pc.equal(removes["version"], version))["path"][0].as_py()
    if bool(replaced[versions == version][0]):
        what, name = "rows were updated or replaced", "skipChangeCommits=true skips such commits"
        condition = "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    else:
        what, name = "rows were deleted", "ignoreDeletes=true skips commits that only delete"
        condition = "DELTA_SOURCE_IGNORE_DELETE"
    return [
        (
            version,
            StreamRowsChangedError(
                f"{what} in the source (for example in {example}), but this stream only delivers new rows",
                help=f"{name}, ignoreChanges=true delivers all rows of rewritten files again, readChangeFeed=true"
                " delivers the changes; restart with one of these options, or start with a new checkpoint",
                file=uri,
                version=version,
                condition=condition,
            ),
        )
    ]


def _change_units(cdc: pa.Table, adds: pa.Table, removes: pa.Table) -> Units:
    """One unit per commit that changed rows; of a commit with change files, only those count."""
    recorded = _numbers(cdc, "version")
    parts = [cdc.select(["version", "size"])]
    for actions in (adds, removes):
        superseded = pa.array(np.isin(_numbers(actions, "version"), recorded))
        parts.append(actions.filter(pc.invert(superseded)).select(["version", "size"]))
    files = pa.concat_tables(parts)
    versions, places = np.unique(_numbers(files, "version"), return_inverse=True)
    counts = np.bincount(places, minlength=len(versions)).astype(np.int64)
    sizes = np.bincount(places, weights=_numbers(files, "size"), minlength=len(versions)).astype(np.int64)
    return Units(versions.astype(np.int64), np.zeros(len(versions), np.int64), counts, sizes)
