"""Merge insert: match source rows with rows of the dataset by key, then update, insert or delete.

The source is kept in memory.  Of the dataset, only the key columns are read: one large fragment or several small ones
at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plural
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter
from trilake.expr.nested import field_problem
from trilake.expr.terms.engine import query
from trilake.lance.commands.column_updates import ColumnUpdate, update_columns
from trilake.lance.commands.columns import is_id
from trilake.lance.commands.delete import mark_all
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions, check_fields, write_fragments
from trilake.lance.commands.replan import USUAL, Retries, replanned_with_files
from trilake.lance.file.errors import OptionError, RowsDoNotFitError
from trilake.lance.file.extensions import restore_table
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, FragmentReader, Rows, by_fragment, one_array, runs, split
from trilake.lance.scan.id_conditions import id_columns
from trilake.lance.scan.parse_sql import filter_of
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import BITMAP_DETAILS, BTREE_DETAILS, Fragment

#: Number of rows of the dataset to join at a time.
_JOINED_ROWS = 1 << 17

_NO_IDS = np.array([], np.uint64)

#: How to write updated rows, see :class:`MergeInsert`.
WriteMode = Literal["auto", "rewrite_rows", "rewrite_columns"]


@dataclass(frozen=True)
class MergeInsert:
    """The actions of a merge insert.

    Parameters
    ----------
    on: key columns.
    update: whether to replace matched rows with those of the source; ``update_if`` is a condition on
        ``source.<column>`` and ``target.<column>``.
    delete_matched: whether to delete matched rows.
    fail_matched: whether to fail on a match.
    insert: whether to insert source rows without a match.
    delete_unmatched: whether to delete rows of the dataset without a match; ``delete_if`` is a condition.
    write_mode: how to write matched rows of a source that lacks columns of the dataset.  ``"rewrite_rows"`` moves whole
        rows to new fragments; ``"rewrite_columns"`` writes the columns of the source for all rows of the fragments;
        ``"auto"`` does the second if ``use_index`` and the key has a BTREE or BITMAP index.
    """

    on: tuple[str, ...]
    update: bool = False
    update_if: str | None = None
    delete_matched: bool = False
    fail_matched: bool = False
    insert: bool = False
    delete_unmatched: bool = False
    delete_if: str | None = None
    write_mode: WriteMode = "auto"
    use_index: bool = True

    def check(self) -> MergeInsert:
        """Return the actions.  Raises ``InvalidArgumentError`` if there are none, or if they conflict."""
        of_matched = self.update, self.delete_matched, self.fail_matched
        if not any((*of_matched, self.insert, self.delete_unmatched)):
            help = "add one: when_matched_update_all() of the builder, or update=True of MergeInsert"
            raise InvalidArgumentError("the merge insert has no actions", help=help)
        if sum(of_matched) > 1:
            raise InvalidArgumentError("only one of update, delete and fail may apply to matched rows")
        return self


@dataclass
class MergeStats:
    """Row counts of a merge insert."""

    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0


@dataclass
class _Matches:
    """Rows of the dataset to delete, and rows of the source to write.

    For each replaced row, ``updates`` has the source row and ``updated`` the address in the dataset.
    """

    deleted: dict[int, Rows] = field(default_factory=dict)
    #: Ids of fragments that have matched rows.
    fragments: set[int] = field(default_factory=set)
    updates: list[Rows] = field(default_factory=list)
    updated: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    matched: Rows = field(default_factory=lambda: np.array([], np.int64))

    def delete(self, ids: npt.NDArray[np.uint64]) -> None:
        """Add addresses of rows to delete; all rows of a fragment must come in one call."""
        self.deleted.update((id, offsets) for id, _, offsets in by_fragment(np.sort(ids)))


def merge_insert(
    snapshot: Snapshot, plan: MergeInsert, source: pa.Table, *, nulls: NullPolicy = "error", retries: Retries = USUAL
) -> tuple[Snapshot, MergeStats]:
    """Run a merge insert as one commit.

    Null keys match nothing.  Two source rows must not update the same row.  Columns and fields of structs that are
    missing in the source keep their values in updated rows, and are null in inserted rows.  ``retries`` are those of
    :func:`~trilake.lance.commands.replan.replanned`.  Raises ``InvalidArgumentError``, ``SchemaMismatchError``,
    ``ConflictError`` or ``WriteFailedError``.
    """
    stats = MergeStats()

    def replan(current: Snapshot, written: list[Fragment]) -> op.Operation:
        nonlocal stats
        operation, stats = planned(current, plan, source, written, nulls=nulls)
        return operation

    by_ids = snapshot.names_ids(snapshot.filter(plan.delete_if))
    return replanned_with_files(snapshot, replan, retries, by_ids=by_ids), stats


def planned(
    snapshot: Snapshot, plan: MergeInsert, source: pa.Table, written: list[Fragment], *, nulls: NullPolicy = "error"
) -> tuple[op.Update, MergeStats]:
    """Write the files of a merge insert, append their fragments to ``written``, and return the operation.

    Raises ``InvalidArgumentError``, ``SchemaMismatchError`` or ``WriteFailedError``.
    """
    if not (plan.update or plan.insert):  # only the keys matter
        source = source.select([i for i, name in enumerate(source.schema.names) if name in plan.on])
    rows = _conformed(snapshot, source, plan.on)
    partial = {f.name: f.type for f in source.schema if field_problem(f.type, rows.schema.field(f.name).type, "")}
    by_columns = _rewrites_columns(snapshot, plan, rows, partial)
    matches = _match(snapshot, plan, rows, in_place=by_columns)
    new = np.setdiff1d(np.arange(rows.num_rows), matches.matched) if plan.insert else np.array([], np.int64)
    changed = np.concatenate([*matches.updates, np.array([], np.int64)])
    addresses = np.concatenate([_NO_IDS, *matches.updated])
    target = Target(snapshot.manifest.schema, snapshot.manifest.storage_version, nulls=nulls)
    updates = rows.take(pa.array(changed))
    done: list[ColumnUpdate] = []
    parts = [_widened(snapshot, rows.take(pa.array(new)))]
    if by_columns:
        done = _with_new_columns(snapshot, updates.drop_columns(list(plan.on)), addresses, written, nulls=nulls)
        addresses = _NO_IDS
    else:
        parts.insert(0, _widened(snapshot, updates, addresses, partial if plan.update else {}))
    batches: Iterator[pa.RecordBatch] = (b for part in parts for b in part.to_batches())
    added = write_fragments(snapshot.store, batches, target, WriteOptions(nulls=nulls), snapshot.runtime)
    written.extend(added)
    updated, removed = mark_all(snapshot, matches.deleted)
    updated = (*updated, *(one.fragment for one in done))
    if plan.insert:
        # A matched source row is not inserted, so a concurrent delete of its match must conflict: list the fragments
        # of all matches.
        changed_ids = {f.id for f in updated} | set(removed)
        matched_ids = matches.fragments - changed_ids
        updated = (*updated, *(f for f in snapshot.manifest.fragments if f.id in matched_ids))
    deleted = sum(map(len, matches.deleted.values())) - len(addresses)
    operation = op.Update(
        removed,
        updated,
        snapshot.moved(added, runs(addresses)),
        tuple(done[0].field_ids) if done else (),
        {one.fragment.id: one.offsets.serialize() for one in done},
    )
    return operation, MergeStats(len(new), len(changed), deleted)


def _rewrites_columns(snapshot: Snapshot, plan: MergeInsert, rows: pa.Table, partial: Collection[str]) -> bool:
    """Whether to write the columns of the source instead of whole rows.

    Raises ``OptionError`` if this was requested, but is impossible.
    """
    schema = snapshot.manifest.schema
    problems = {
        "it does not update matched rows": not plan.update,
        "it inserts rows": plan.insert and plan.write_mode != "auto",
        "it deletes rows that the source does not have": plan.delete_unmatched,
        "the source has all columns of the dataset": rows.num_columns == len(snapshot.schema.names),
        "the source has no columns except the keys": rows.num_columns == len(plan.on),
        "the source lacks fields of structs": bool(partial),
        "the source has blobs": any(f.is_blob for f in schema.fields if rows.schema.get_field_index(f.name) >= 0),
        f"the dataset has a column {ROW_ADDRESS!r}": not is_id(snapshot, ROW_ADDRESS),
    }
    problem = next((text for text, found in problems.items() if found), None)
    if plan.write_mode == "rewrite_columns":
        if problem is not None:
            raise OptionError(
                f"this merge insert cannot rewrite columns: {problem}",
                help="leave write_mode out, or pass rewrite_rows",
            )
        return True
    if plan.write_mode != "auto" or problem is not None or not plan.use_index or len(plan.on) > 1:
        return False
    key = schema.field(plan.on[0]).id
    exact = {BTREE_DETAILS.type_url, BITMAP_DETAILS.type_url}
    return not snapshot.manifest.storage_version.is_legacy and any(
        index.fields == (key,) and index.details is not None and index.details.type_url in exact
        for index in snapshot.manifest.indices
    )


def _with_new_columns(
    snapshot: Snapshot,
    updates: pa.Table,
    addresses: npt.NDArray[np.uint64],
    written: list[Fragment],
    *,
    nulls: NullPolicy,
) -> list[ColumnUpdate]:
    """Write the columns of ``updates`` for the fragments of the rows at ``addresses``."""
    done: list[ColumnUpdate] = []
    updates = updates.append_column(ROW_ADDRESS, pa.array(addresses))
    with snapshot.store.write_group() as group:
        for id, at, _ in by_fragment(addresses):
            reader = snapshot.by_id[id]
            one = update_columns(snapshot, reader, updates.take(pa.array(at)), ROW_ADDRESS, nulls=nulls, group=group)
            before = {file.path for file in reader.fragment.files}
            written.append(replace(one.fragment, files=tuple(f for f in one.fragment.files if f.path not in before)))
            done.append(one)
    return done


def _conformed(snapshot: Snapshot, source: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """Select the source columns in dataset order, and cast them."""
    names, source_names = snapshot.schema.names, source.schema.names
    if len(set(source_names)) < len(source_names) or not set(on) <= set(source_names) <= set(names):
        raise RowsDoNotFitError(
            f"the source has columns {', '.join(source_names)}, but the dataset has {', '.join(names)}",
            help=f"the source must have columns of the dataset, including the keys ({', '.join(on)})",
        )
    fields = [f for f in snapshot.schema if source.schema.get_field_index(f.name) >= 0]
    fill = not snapshot.manifest.storage_version.is_legacy
    for f in fields:
        check_fields(source.schema.field(f.name).type, f, fill=fill)
    try:
        # Another library may have registered its own class of the same extension type.
        source = restore_table(source.select([f.name for f in fields]))
        return source.cast(pa.schema([f.with_nullable(True) for f in fields]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise RowsDoNotFitError(
            f"the source's columns cannot be cast to the dataset's types: {e}", help="cast them before the merge"
        ) from e


def _kept(old: pa.Array, new: pa.Array, given: pa.DataType, path: str) -> pa.Array:
    """Take the struct fields that the source lacks, whose type was ``given``, from the rows of the dataset."""
    problem = field_problem(given, new.type, path)
    if problem is None:
        return new
    if not pa.types.is_struct(new.type):
        raise RowsDoNotFitError(problem, help="rename the fields to match the dataset", column=path)
    types = {f.name: f.type for f in given}
    children = [
        _kept(before, after, types[f.name], f"{path}.{f.name}") if f.name in types else before
        for f, before, after in zip(new.type, old.flatten(), new.flatten(), strict=True)
    ]
    both_null = pc.and_(old.is_null(), new.is_null())
    return pa.StructArray.from_arrays(children, fields=list(new.type), mask=both_null)


def _widened(
    snapshot: Snapshot,
    rows: pa.Table,
    replaced: npt.NDArray[np.uint64] | None = None,
    partial: Mapping[str, pa.DataType] = {},
) -> pa.Table:
    """Add the missing columns, and fields of ``partial`` structs, from the rows ``replaced`` or null."""
    given_names = set(rows.schema.names)
    absent = [f for f in snapshot.schema if f.name not in given_names or f.name in partial]
    if not absent:
        return rows
    if replaced is None:
        others = pa.table([pa.nulls(len(rows), f.type) for f in absent], [f.name for f in absent])
    else:
        others = snapshot.take_addresses(replaced, snapshot.rows_view.schema.project([f.name for f in absent]))
    columns = {**dict(zip(rows.schema.names, rows.columns)), **dict(zip(others.schema.names, others.columns))}
    for name, given in partial.items():
        columns[name] = _kept(one_array(columns[name]), one_array(rows.column(name)), given, name)
    return pa.table({name: columns[name] for name in snapshot.schema.names})


def _match(snapshot: Snapshot, plan: MergeInsert, rows: pa.Table, *, in_place: bool) -> _Matches:
    keys = _keys(rows.select(list(plan.on))).append_column("source_row", pa.array(np.arange(rows.num_rows)))
    condition = None if plan.delete_if is None else snapshot.filter(plan.delete_if)
    sides = pair_schema(snapshot.schema, rows.schema)
    update_if = None if plan.update_if is None else filter_of(plan.update_if, sides)
    needs = set(plan.on)
    if condition is not None:
        needs |= condition.columns
    if update_if is not None:
        needs |= {name for name in snapshot.schema.names if ("target", name) in update_if.paths}
        needs |= set(snapshot.schema.names) if ("target",) in update_if.paths else set()
    read = [name for name in snapshot.schema.names if name in needs]
    on = " AND ".join(f"s.k{i} = t.k{i}" for i in range(len(plan.on)))
    matches = _Matches()
    matched_rows: list[Rows] = []
    id_names = [] if condition is None else id_columns(condition, snapshot.schema)
    for targets_table in _targets(snapshot, read, id_names):
        at = pa.array(np.arange(targets_table.num_rows))
        target_keys = _keys(targets_table.select(list(plan.on))).append_column("target_row", at)
        pairs = query(f"SELECT s.source_row, t.target_row FROM s JOIN t ON {on} ORDER BY 2, 1", s=keys, t=target_keys)
        sources, targets = (pairs.column(i).to_numpy() for i in range(2))
        matched_rows.append(sources)
        target_ids = targets_table.column(ROW_ADDRESS).to_numpy()
        matches.fragments.update(np.unique(split(target_ids[targets])[0]).tolist())
        deleted: list[Rows] = []
        if len(targets) and plan.fail_matched:
            raise InvalidArgumentError(
                f"{plural(len(targets), 'row matches', 'rows match')}, but when_matched_fail is set"
            )
        if plan.delete_matched:
            deleted.append(np.unique(targets))
        elif plan.update and len(targets):
            if update_if is not None:
                mask = _updatable(update_if, targets_table, rows, sources, targets)
                sources, targets = sources[mask], targets[mask]
            if len(np.unique(targets)) < len(targets):
                raise InvalidArgumentError(
                    "several source rows match one row of the dataset", help="remove duplicate keys from the source"
                )
            if not in_place:
                deleted.append(targets)
            matches.updates.append(sources)
            matches.updated.append(target_ids[targets])
        if plan.delete_unmatched:
            deleted.append(_unmatched(condition, targets_table, pairs.column(1).to_numpy()))
        if deleted:
            matches.delete(target_ids[np.unique(np.concatenate(deleted))])
    matches.matched = np.unique(np.concatenate(matched_rows)) if matched_rows else matches.matched
    return matches


def _targets(snapshot: Snapshot, columns: list[str], id_names: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of the dataset with their addresses; a fragment is never split between tables.

    Small fragments share a table, as each join takes a few ms whatever its size.
    """
    plan = snapshot.plan(columns, row_metadata=tuple(dict.fromkeys((ROW_ADDRESS, *id_names))))
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
    """Return the schema for conditions, with the structs ``source`` and ``target``."""
    sides = {"source": source or schema, "target": schema}
    return pa.schema([pa.field(side, pa.struct(list(columns))) for side, columns in sides.items()])


def _updatable(condition: Filter, target_rows: pa.Table, rows: pa.Table, sources: Rows, targets: Rows) -> Any:
    source, target = rows.take(pa.array(sources)), target_rows.drop_columns([ROW_ADDRESS]).take(pa.array(targets))
    pairs = pa.table({"source": _struct(source), "target": _struct(target)})
    return np.asarray(condition.mask(pairs))


def _struct(table: pa.Table) -> pa.Array:
    return pc.make_struct(*table.combine_chunks().columns, field_names=table.schema.names).combine_chunks()
