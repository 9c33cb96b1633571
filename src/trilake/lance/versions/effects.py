"""Effects: the manifest that an operation makes of the one before.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from pyroaring import BitMap, FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import CommitConflictError
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import MAX_FRAGMENT_ID, Fragment, IndexMetadata, Manifest, with_flags


def apply(
    newest: Manifest | None, operation: op.Operation, *, file: str, now_ns: int, old: Manifest | None = None
) -> Manifest:
    """The manifest that follows ``newest`` (``None``: there is none yet) by an operation.

    ``file`` is the name of its transaction file, ``now_ns`` the time in ns since the Unix epoch.

    ``old`` is the manifest of the version that a restore names.  Raises ``ConflictError`` where the operation names
    fragments or fields that are not there any more, and ``InvalidArgumentError`` for one that cannot begin a dataset.
    """
    if isinstance(operation, op.Overwrite):
        last = -1 if newest is None else newest.max_fragment_id
        fragments, _ = _numbered(operation.fragments, -1)
        last = max([last, *(f.id for f in fragments)])
        base = Manifest(0, operation.schema, fragments, max_fragment_id=last)
        if newest is not None:
            base = replace(base, version=newest.version, data_format=newest.data_format, extra=newest.extra)
    elif newest is None:
        raise InvalidArgumentError("a dataset begins with an Overwrite", help="commit that first")
    elif isinstance(operation, op.Restore):
        assert old is not None
        # Ids are never used twice, whatever the restored version says: index files may know them.
        base = replace(
            old, version=newest.version, max_fragment_id=max(old.max_fragment_id, newest.max_fragment_id), tag=""
        )
    else:
        base = _changed(newest, operation)
    if base.max_fragment_id > MAX_FRAGMENT_ID:
        raise InvalidArgumentError(
            f"the ids of fragments are used up: {base.max_fragment_id} would be the next",
            help="write the rows into a new dataset",
            version=base.version,
        )
    made = replace(
        base,
        # By their ids, as pylance lists them; it cannot update a dataset in which they stand in another order.
        fragments=tuple(sorted(base.fragments, key=attrgetter("id"))),
        version=base.version + 1,
        timestamp_ns=now_ns,
        transaction_file=file,
        writer_version=Manifest.writer_version,
        tag="",
    )
    return with_flags(made)


def _changed(newest: Manifest, operation: op.Operation) -> Manifest:
    match operation:
        case op.Append(new):
            return _appended(newest, newest.fragments, new)
        case op.Delete(updated, removed, _):
            return replace(newest, fragments=_replaced(newest, updated, removed))
        case op.Update(removed, updated, new, modified):
            changed = _appended(newest, _replaced(newest, updated, removed), new)
            return replace(changed, indices=_without_stale(newest.indices, modified, updated))
        case op.CreateIndex(added, dropped):
            known = {f.id for f in newest.schema.walk()}
            without_column = [i.name for i in added if not set(i.fields) <= known]
            if without_column:
                raise CommitConflictError(
                    f"the column of index {without_column[0]} was dropped meanwhile", version=newest.version
                )
            names, ids = {i.name for i in added}, {i.uuid for i in dropped}
            gone = [i.name for i in dropped if i.uuid not in {present.uuid for present in newest.indices}]
            if gone:
                # Else what was dropped meanwhile would come back, in the files of the one that was to replace it.
                raise CommitConflictError(
                    f"index {gone[0]} was dropped or replaced meanwhile",
                    help="read the newest version and repeat the change",
                    version=newest.version,
                )
            others = [i for i in newest.indices if i.name not in names and i.uuid not in ids]
            return replace(newest, indices=(*others, *added))
        case op.Merge(fragments, schema):
            known = {f.id for f in schema.walk()}
            others = [i for i in newest.indices if set(i.fields) <= known]
            highest = max([newest.max_fragment_id, *(f.id for f in fragments)])
            return replace(
                newest,
                fragments=tuple(fragments),
                schema=schema.with_dictionaries({**newest.schema.dictionaries, **schema.dictionaries}),
                indices=tuple(others),
                max_fragment_id=highest,
            )
        case op.Rewrite():
            return _rewritten(newest, operation)
        case op.ReserveFragments(count):
            return replace(newest, max_fragment_id=_last_id(newest) + count)
    raise InvalidArgumentError(f"{operation!r} cannot be committed")


def _last_id(manifest: Manifest) -> int:
    """The highest id in use, -1 where there never was one."""
    if manifest.max_fragment_id >= 0:
        return manifest.max_fragment_id
    # Older writers say the same where fragment 0 is gone: only an index would mistake the next one for it.
    return 0 if any(i.fragment_bitmap is None or 0 in i.fragment_bitmap for i in manifest.indices) else -1


def _numbered(fragments: Iterable[Fragment], last: int) -> tuple[tuple[Fragment, ...], int]:
    """New fragments with ids after ``last``; those that have one already (reserved before) keep it."""
    numbered = []
    for fragment in fragments:
        if fragment.id == 0:
            last += 1
            fragment = replace(fragment, id=last)
        numbered.append(fragment)
    return tuple(numbered), max([last, *(f.id for f in numbered)])


def _appended(newest: Manifest, present: tuple[Fragment, ...], new: Iterable[Fragment]) -> Manifest:
    added, last = _numbered(new, _last_id(newest))
    both = {f.id for f in present} & {f.id for f in added}
    if both:
        raise CommitConflictError(f"fragment {min(both)} to be added is there already", version=newest.version)
    return replace(newest, fragments=(*present, *added), max_fragment_id=max(last, newest.max_fragment_id))


def _replaced(newest: Manifest, updated: Iterable[Fragment], removed: Iterable[int]) -> tuple[Fragment, ...]:
    by_id, removed_ids = {f.id: f for f in updated}, set(removed)
    missing = (by_id.keys() | removed_ids) - {f.id for f in newest.fragments}
    if missing:
        raise CommitConflictError(
            f"fragment {min(missing)} is not there any more",
            help="read the newest version and repeat the change",
            version=newest.version,
        )
    return tuple(by_id.get(f.id, f) for f in newest.fragments if f.id not in removed_ids)


def _without_stale(
    indices: tuple[IndexMetadata, ...], modified: tuple[int, ...], updated: Iterable[Fragment]
) -> tuple[IndexMetadata, ...]:
    """The indices, without those fragments whose rows got other values of their fields."""
    ids = FrozenBitMap([f.id for f in updated])

    def current(index: IndexMetadata) -> IndexMetadata | None:
        if set(modified).isdisjoint(index.fields):
            return index
        # What does not say which fragments it covers covers these, too.
        return None if index.fragment_bitmap is None else replace(index, fragment_bitmap=index.fragment_bitmap - ids)

    return tuple(i for i in map(current, indices) if i is not None)


def _rewritten(newest: Manifest, rewrite: op.Rewrite) -> Manifest:
    fragments, last = list(newest.fragments), _last_id(newest)
    groups: list[tuple[set[int], tuple[Fragment, ...]]] = []
    for group in rewrite.groups:
        ids = {f.id for f in group.old}
        if not ids or not ids <= {f.id for f in fragments}:
            raise CommitConflictError("a fragment that was compacted is not there any more", version=newest.version)
        new, last = _numbered(group.new, last)
        fragments = [*(f for f in fragments if f.id not in ids), *new]
        groups.append((ids, new))
    new_ids = {i.old: i for i in rewrite.rewritten_indices}
    indices = [_moved(i, new_ids.get(i.uuid), groups) for i in newest.indices]
    return replace(
        newest,
        fragments=tuple(fragments),
        indices=tuple(i for i in indices if i is not None),
        max_fragment_id=max(last, newest.max_fragment_id),
    )


def _moved(
    index: IndexMetadata, rewritten: op.RewrittenIndex | None, groups: list[tuple[set[int], tuple[Fragment, ...]]]
) -> IndexMetadata | None:
    """The index after a rewrite; one that was not rewritten with its rows is given up."""
    if index.fragment_bitmap is None:
        return None if rewritten is None else _renamed(index, rewritten)
    covered = BitMap(index.fragment_bitmap)
    touched = False
    for old, new in groups:
        if covered & BitMap(old):
            touched = True
            whole = BitMap(old) <= covered
            covered -= BitMap(old)
            if whole:
                covered |= BitMap([f.id for f in new])
    if not touched:
        return index
    return None if rewritten is None else replace(_renamed(index, rewritten), fragment_bitmap=FrozenBitMap(covered))


def _renamed(index: IndexMetadata, rewritten: op.RewrittenIndex) -> IndexMetadata:
    """The entry of an index with new files.  What else was said of the old ones, their sizes among it, is wrong now."""
    version = None if index.index_version is None else rewritten.version
    details = None if index.details is None else rewritten.details or index.details
    return replace(index, uuid=rewritten.new, details=details, index_version=version, extra=b"")
