"""Merge insert: rows of a source matched with rows of the dataset by key columns, and what becomes of either.

The source is held in memory; of the dataset, only the key columns are, a large fragment or some small ones at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import flag
from trilake.common.display import PublicNames
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter
from trilake.expr.terms.engine import query
from trilake.lance.commands import input_rows
from trilake.lance.commands.delete import mark_all
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions, check_fields, write_fragments
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.commands.replan import USUAL, Retries, replanned_with_files
from trilake.lance.file.errors import RowsDoNotFitError
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, FragmentReader, Rows, split
from trilake.lance.scan.id_conditions import id_columns
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.scan.sql_text import filter_of
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment

#: Rows of the dataset from which on they are joined with the source.
_JOINED_ROWS = 1 << 17

_NO_IDS = np.array([], np.uint64)


@dataclass(frozen=True)
class MergeInsert:
    """What a merge insert does.

    Parameters
    ----------
    on: key columns.
    update: whether matched rows are replaced by those of the source; ``update_if`` says which, as a condition over
        ``source.<column>`` and ``target.<column>``.
    delete_matched: whether matched rows of the dataset are deleted.
    fail_matched: whether a match is an error.
    insert: whether rows of the source without a match are added.
    delete_unmatched: whether rows of the dataset without a match are deleted; ``delete_if`` says which.
    """

    on: tuple[str, ...]
    update: bool = False
    update_if: str | None = None
    delete_matched: bool = False
    fail_matched: bool = False
    insert: bool = False
    delete_unmatched: bool = False
    delete_if: str | None = None


@dataclass
class MergeStats:
    """Numbers of rows."""

    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0

    def numbers(self) -> dict[str, int]:
        """The numbers by name."""
        return asdict(self)


@dataclass
class _Matches:
    """What the match has found: rows of the dataset to delete, and rows of the source to write.

    ``updates`` and ``updated`` are, for each row that is replaced, the source's row and the address of the dataset's.
    """

    deleted: dict[int, Rows] = field(default_factory=dict)
    #: The fragments of matched rows.
    fragments: set[int] = field(default_factory=set)
    updates: list[Rows] = field(default_factory=list)
    updated: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    matched: Rows = field(default_factory=lambda: np.array([], np.int64))

    def delete(self, ids: npt.NDArray[np.uint64]) -> None:
        """Add rows to delete by their addresses: those of a fragment all at once."""
        if not len(ids):
            return
        of, offsets = split(np.sort(ids))  # fragments need not be in the order of their ids
        fragments, starts = np.unique(of, return_index=True)
        self.deleted.update(zip(fragments.tolist(), np.split(offsets, starts[1:]), strict=True))


def merge_insert(
    snapshot: Snapshot,
    what: MergeInsert,
    source: pa.Table,
    *,
    nulls: NullPolicy = "error",
    retries: Retries = USUAL,
) -> tuple[Snapshot, MergeStats]:
    """Run a merge insert as one commit.

    A null in a key column matches nothing.  Two rows of the source with one key may not both replace a row.  Columns
    that the source does not have keep their values in rows that are updated, and are null in rows that are inserted.
    ``retries`` are those of :func:`~trilake.lance.commands.replan.replanned`.

    Raises ``InvalidArgumentError``, ``SchemaMismatchError``, ``ConflictError`` or ``WriteFailedError``.
    """
    stats = MergeStats()

    def plan(current: Snapshot, written: list[Fragment]) -> op.Operation:
        nonlocal stats
        operation, stats = planned(current, what, source, written, nulls=nulls)
        return operation

    by_ids = snapshot.names_ids(snapshot.filter(what.delete_if))
    changed = replanned_with_files(snapshot, plan, retries, by_ids=by_ids)
    return changed, stats


def planned(
    snapshot: Snapshot, what: MergeInsert, source: pa.Table, written: list[Fragment], *, nulls: NullPolicy = "error"
) -> tuple[op.Update, MergeStats]:
    """Write the rows of a merge insert, whose fragments ``written`` gets, and what makes it a version.

    Raises as :func:`merge_insert` does, but for conflicts.
    """
    rows = _conformed(snapshot, source, what.on)
    matches = _match(snapshot, what, rows)
    new = np.setdiff1d(np.arange(rows.num_rows), matches.matched) if what.insert else np.array([], np.int64)
    changed = np.concatenate([*matches.updates, np.array([], np.int64)])
    target = Target(snapshot.manifest.schema, snapshot.manifest.storage_version, nulls=nulls)
    parts = [_widened(snapshot, rows.take(pa.array(changed)), np.concatenate([_NO_IDS, *matches.updated]))]
    parts.append(_widened(snapshot, rows.take(pa.array(new))))
    batches: Iterator[pa.RecordBatch] = (b for part in parts for b in part.to_batches())
    written.extend(write_fragments(snapshot.store, batches, target, WriteOptions(nulls=nulls), snapshot.runtime))
    updated, removed = mark_all(snapshot, matches.deleted)
    if what.insert:
        # A row of the source is not added because of the rows that it matches: whoever deletes those excludes this.
        changed_ids = {f.id for f in updated} | set(removed)
        kept = matches.fragments - changed_ids
        updated = (*updated, *(f for f in snapshot.manifest.fragments if f.id in kept))
    deleted = sum(map(len, matches.deleted.values())) - len(changed)
    of, at = split(np.concatenate([_NO_IDS, *matches.updated]))
    edges = np.flatnonzero(np.diff(of)) + 1
    runs = zip(of[np.concatenate(([0], edges))].tolist(), np.split(at, edges), strict=True) if len(of) else ()
    return op.Update(removed, updated, snapshot.moved(written, runs)), MergeStats(len(new), len(changed), deleted)


def _conformed(snapshot: Snapshot, source: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """The source in its columns of the dataset, which are in the dataset's order and among them those of ``on``."""
    names, own = snapshot.schema.names, source.schema.names
    if len(set(own)) < len(own) or not set(on) <= set(own) <= set(names):
        raise RowsDoNotFitError(
            f"the source has the columns {', '.join(own)}, the dataset {', '.join(names)}",
            help=f"give the source columns of the dataset, those to match on ({', '.join(on)}) among them",
        )
    fields = [f for f in snapshot.schema if f.name in own]
    for f in fields:
        check_fields(source.schema.field(f.name).type, f)
    try:
        return source.select([f.name for f in fields]).cast(pa.schema([f.with_nullable(True) for f in fields]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise RowsDoNotFitError(f"the source does not fit the dataset: {e}", help="cast its columns") from e


def _widened(snapshot: Snapshot, rows: pa.Table, replaced: npt.NDArray[np.uint64] | None = None) -> pa.Table:
    """Rows of the source with all columns of the dataset: others are those of the rows ``replaced``, or null."""
    schema = pa.schema([f.with_nullable(True) for f in snapshot.schema])
    absent = [f for f in schema if f.name not in rows.schema.names]
    if not absent:
        return rows
    if replaced is None:
        others = pa.table([pa.nulls(len(rows), f.type) for f in absent], schema=pa.schema(absent))
    else:
        others = snapshot.take_addresses(replaced, snapshot.rows_view.schema.project([f.name for f in absent]))
    columns = {**dict(zip(rows.schema.names, rows.columns)), **dict(zip(others.schema.names, others.columns))}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _match(snapshot: Snapshot, what: MergeInsert, rows: pa.Table) -> _Matches:
    keys = _keys(rows.select(list(what.on))).append_column("source_row", pa.array(np.arange(rows.num_rows)))
    condition = None if what.delete_if is None else snapshot.filter(what.delete_if)
    sides = pair_schema(snapshot.schema, rows.schema)
    update_if = None if what.update_if is None else filter_of(what.update_if, sides)
    needs = set(what.on)
    if condition is not None:
        needs |= condition.columns
    if update_if is not None:
        needs |= {name for name in snapshot.schema.names if ("target", name) in update_if.paths}
        needs |= set(snapshot.schema.names) if ("target",) in update_if.paths else set()
    read = [name for name in snapshot.schema.names if name in needs]
    on = " AND ".join(f"s.k{i} = t.k{i}" for i in range(len(what.on)))
    matches = _Matches()
    seen: list[Rows] = []
    asked = [] if condition is None else id_columns(condition, snapshot.schema)
    for targets_table in _targets(snapshot, read, asked):
        at = pa.array(np.arange(targets_table.num_rows))
        left = _keys(targets_table.select(list(what.on))).append_column("target_row", at)
        pairs = query(f"SELECT s.source_row, t.target_row FROM s JOIN t ON {on} ORDER BY 2, 1", s=keys, t=left)
        sources, targets = (pairs.column(i).to_numpy() for i in range(2))
        seen.append(sources)
        target_ids = targets_table.column(ROW_ADDRESS).to_numpy()
        matches.fragments.update(np.unique(split(target_ids[targets])[0]).tolist())
        deleted: list[Rows] = []
        if len(targets) and what.fail_matched:
            raise InvalidArgumentError(f"{len(targets)} rows match, which this merge insert forbids")
        if what.delete_matched:
            deleted.append(np.unique(targets))
        elif what.update and len(targets):
            if update_if is not None:
                mask = _updatable(update_if, targets_table, rows, sources, targets)
                sources, targets = sources[mask], targets[mask]
            if len(np.unique(targets)) < len(targets):
                raise InvalidArgumentError(
                    "several rows of the source match one row of the dataset", help="remove all but one from the source"
                )
            deleted.append(targets)
            matches.updates.append(sources)
            matches.updated.append(target_ids[targets])
        if what.delete_unmatched:
            deleted.append(_unmatched(condition, targets_table, pairs.column(1).to_numpy()))
        if deleted:
            matches.delete(target_ids[np.unique(np.concatenate(deleted))])
    matches.matched = np.unique(np.concatenate(seen)) if seen else matches.matched
    return matches


def _targets(snapshot: Snapshot, columns: list[str], asked: list[str]) -> Iterator[pa.Table]:
    """The rows of the dataset with their addresses: those of a fragment in one table, which small fragments share.

    A join takes some ms however few rows it has, and a dataset of many writers has many fragments of a few rows.
    """
    plan = snapshot.plan(columns, places=tuple(dict.fromkeys((ROW_ADDRESS, *asked))))
    readers: list[FragmentReader] = []
    rows = 0
    for reader in snapshot.readers:
        readers.append(reader)
        rows += reader.num_rows
        if rows >= _JOINED_ROWS:
            yield from _table(snapshot.scan(plan, readers))
            readers, rows = [], 0
    yield from _table(snapshot.scan(plan, readers))


def _table(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    some = list(batches)
    if some:
        yield pa.Table.from_batches(some)


def _keys(table: pa.Table) -> pa.Table:
    columns = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns]
    return pa.table(columns, names=[f"k{i}" for i in range(len(columns))])


def _unmatched(condition: Filter | None, targets: pa.Table, matched: Rows) -> Rows:
    rest = np.setdiff1d(np.arange(targets.num_rows), matched)
    if condition is None or not len(rest):
        return rest
    mask: npt.NDArray[np.bool_] = np.asarray(condition.mask(targets.take(pa.array(rest))))
    unmatched: Rows = rest[mask]
    return unmatched


def pair_schema(schema: pa.Schema, source: pa.Schema | None = None) -> pa.Schema:
    """What a condition over ``source`` and ``target`` names; the source has all columns unless it says which."""
    sides = {"source": source or schema, "target": schema}
    return pa.schema([pa.field(side, pa.struct(list(columns))) for side, columns in sides.items()])


def _updatable(condition: Filter, target_rows: pa.Table, rows: pa.Table, sources: Rows, targets: Rows) -> Any:
    source, target = rows.take(pa.array(sources)), target_rows.drop_columns([ROW_ADDRESS]).take(pa.array(targets))
    pairs = pa.table({"source": _struct(source), "target": _struct(target)})
    return np.asarray(condition.mask(pairs))


def _struct(table: pa.Table) -> pa.Array:
    return pc.make_struct(*table.combine_chunks().columns, field_names=table.schema.names).combine_chunks()


class MergeInsertBuilder(PublicNames):
    """Describes a merge insert step by step; :meth:`execute` runs it."""

    def __init__(self, dataset: OpenDataset, on: str | Iterable[str]) -> None:
        schema = dataset.snapshot.view.schema
        names = (on,) if isinstance(on, str) else tuple(on)
        keys = tuple(schema.spelled(str(name)) for name in names)
        unknown = [k for k in keys if k not in dataset.schema.names]
        if unknown or not keys:
            raise InvalidArgumentError(
                f"there is no column {unknown[0]!r} to match on" if unknown else "a merge insert needs a key column",
                help=f"there are {', '.join(dataset.schema.names)}",
            )
        self._dataset, self._what = dataset, MergeInsert(keys)
        self._retries = USUAL

    def _with(self, **changes: Any) -> Self:
        self._what = replace(self._what, **changes)
        return self

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Replace matched rows by those of the source, where ``condition`` over ``source`` and ``target`` is true.

        Columns that the source does not have keep their values.
        """
        return self._with(update=True, update_if=condition)

    def when_matched_delete(self) -> Self:
        """Delete matched rows of the dataset."""
        return self._with(delete_matched=True)

    def when_matched_fail(self) -> Self:
        """Refuse to run where any row matches."""
        return self._with(fail_matched=True)

    def when_not_matched_insert_all(self) -> Self:
        """Add rows of the source that match none; columns that it does not have are null."""
        return self._with(insert=True)

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete rows of the dataset that match none, where ``expr`` is true."""
        return self._with(delete_unmatched=True, delete_if=expr)

    def use_index(self, use_index: bool = True) -> Self:
        """Accepted for other implementations' sake: rows are matched by their key columns, without an index."""
        flag("use_index", use_index)
        return self

    def write_mode(self, mode: str | None = None) -> Self:
        """Accepted for other implementations' sake: whole rows are written anew, which is ``"rewrite_rows"``.

        Raises ``InvalidArgumentError`` for what is no mode.
        """
        if mode not in (None, "auto", "rewrite_rows", "rewrite_columns"):
            raise InvalidArgumentError(f"write_mode is {mode!r}", help="it is auto, or rewrite_rows")
        return self

    def data_storage_version(self, version: str) -> Self:
        """Name the version of the files that rows are written in, which can only be the dataset's."""
        current = self._dataset.snapshot.manifest.storage_version
        if StorageVersion.parse(version) != current:
            raise InvalidArgumentError(
                f"the files of the dataset are of Lance {current}, not {version}", help="leave it out"
            )
        return self

    def conflict_retries(self, max_retries: int) -> Self:
        """Set how often the merge is planned anew after others have changed the same rows."""
        self._retries = replace(self._retries, times=Retries.of(max_retries).times)
        return self

    def retry_timeout(self, timeout: timedelta) -> Self:
        """Set for how long it is planned anew after others have changed the same rows; by default only how often."""
        self._retries = replace(self._retries, timeout=Retries.of(retry_timeout=timeout).timeout)
        return self

    def execute(self, data_obj: Any, *, schema: pa.Schema | None = None) -> dict[str, int]:
        """Run it; the numbers of rows that were inserted, updated and deleted."""
        what, source, dataset = self._checked(), self._source(data_obj, schema), self._dataset
        done, stats = merge_insert(dataset.snapshot, what, source, nulls=dataset.nulls, retries=self._retries)
        dataset.moved(done)
        return stats.numbers()

    def _checked(self) -> MergeInsert:
        """What it does.  Raises ``InvalidArgumentError`` where that is nothing, or cannot be."""
        w = self._what
        if not any((w.update, w.delete_matched, w.fail_matched, w.insert, w.delete_unmatched)):
            raise InvalidArgumentError(
                "the merge insert does nothing", help="say what becomes of matched rows, or others"
            )
        if sum((w.update, w.delete_matched, w.fail_matched)) > 1:
            raise InvalidArgumentError("matched rows can be updated, deleted or refused, not several of these")
        return w

    def _source(self, data_obj: Any, schema: pa.Schema | None) -> pa.Table:
        return input_rows.table(data_obj, schema)
