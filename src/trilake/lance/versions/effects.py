"""Effects: build the next manifest from an operation and the newest manifest.  Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import CommitConflictError
from trilake.lance.file.schema import TOMBSTONE, LanceSchema
from trilake.lance.file.storage_version import LEGACY
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import (
    MAX_FRAGMENT_ID,
    STABLE_ROW_IDS,
    BasePath,
    DataFile,
    ExternalFile,
    Fragment,
    IndexMetadata,
    Manifest,
    duplicate_base,
    with_flags,
    with_format,
)
from trilake.lance.versions.row_ids import Ids, count_ids, parse_ids, parse_versions, serialise_ids, serialise_versions


def apply(
    newest: Manifest | None, operation: op.Operation, *, file: str, now_ns: int, old: Manifest | None = None
) -> Manifest:
    """Apply an operation on top of ``newest``; ``None`` begins a dataset.

    ``file`` is the name of its transaction file, ``now_ns`` the time in ns since the Unix epoch, ``old`` the manifest
    of the version to restore.  Raises ``ConflictError`` if fragments or fields of the operation no longer exist, and
    ``InvalidArgumentError`` for an operation that cannot begin a dataset.
    """
    if isinstance(operation, op.Overwrite):
        base = _overwritten(newest, operation)
    elif newest is None:
        raise InvalidArgumentError(
            "the first commit of a dataset must be an Overwrite", help="commit an Overwrite first"
        )
    elif isinstance(operation, op.Restore):
        assert old is not None
        # Ids are never reused, not even after a restore: index files may have them.
        base = replace(
            old,
            version=newest.version,
            max_fragment_id=max(old.max_fragment_id, newest.max_fragment_id),
            next_row_id=max(old.next_row_id, newest.next_row_id),
            branch=newest.branch,
            tag="",
        )
    else:
        base = _changed(newest, operation)
    if base.max_fragment_id > MAX_FRAGMENT_ID:
        raise InvalidArgumentError(
            f"no fragment ids are left: the next would be {base.max_fragment_id}",
            help="write the rows into a new dataset",
            version=base.version,
        )
    following = replace(
        base,
        # Sorted by id: pylance cannot update a dataset with another order.
        fragments=tuple(sorted(base.fragments, key=attrgetter("id"))),
        version=base.version + 1,
        timestamp_ns=now_ns,
        transaction_file=file,
        writer_version=Manifest.writer_version,
        tag="",
        transaction=None,
    )
    if newest is not None:
        following = replace(following, fragments=_with_updates(newest, following, operation))
    return with_flags(with_format(with_row_ids(following)))


def _overwritten(newest: Manifest | None, operation: op.Overwrite) -> Manifest:
    """Build the manifest of an overwrite, which keeps the table's configuration and metadata."""
    if newest is None:
        version = operation.storage_version or LEGACY
        fragments, last = _numbered(operation.fragments, -1)
        _check_bases(operation.initial_bases, fragments)
        flags = STABLE_ROW_IDS if operation.stable_row_ids else 0
        return Manifest(
            0,
            operation.schema,
            fragments,
            max_fragment_id=last,
            # The format's first writers omit it.
            data_format=None if version.is_legacy else ("lance", str(version)),
            config=dict(operation.config_upsert_values),
            base_paths=operation.initial_bases,
            reader_feature_flags=flags,
            writer_feature_flags=flags,
        )
    version = operation.storage_version or newest.storage_version
    # Writers of the legacy format number fragments from 0 again; fragments with ids keep them.
    again = version.is_legacy or any(f.id for f in operation.fragments)
    fragments, last = _numbered(operation.fragments, -1 if again else newest.max_fragment_id)
    base_paths = _with_bases(newest, operation.initial_bases)
    _check_bases(base_paths, operation.fragments)
    return replace(
        newest,
        schema=operation.schema,
        fragments=fragments,
        indices=(),
        max_fragment_id=max(last, newest.max_fragment_id),
        config={**newest.config, **operation.config_upsert_values},
        base_paths=base_paths,
        data_format=newest.data_format if version == newest.storage_version else ("lance", str(version)),
    )


def with_row_ids(manifest: Manifest) -> Manifest:
    """Give new stable ids, with their versions, to rows that have none, if the dataset has such ids."""
    if not manifest.has_stable_row_ids:
        return manifest
    following, fragments = manifest.next_row_id, []
    for fragment in manifest.fragments:
        stored = fragment.row_ids
        count = count_ids(stored) if isinstance(stored, bytes) else 0
        updated = np.full(fragment.physical_rows, manifest.version, np.uint64)
        if isinstance(stored, ExternalFile) or count >= fragment.physical_rows:
            complete = fragment.last_updated is not None or not len(updated)
            fragments.append(fragment if complete else replace(fragment, last_updated=serialise_versions(updated)))
            continue
        new = fragment.physical_rows - count
        ids = np.arange(following, following + new, dtype=np.uint64)
        if count and isinstance(stored, bytes):
            ids = np.concatenate([parse_ids(stored, count, file=""), ids])
        created = np.full(new, manifest.version, np.uint64)
        if count and isinstance(fragment.created, bytes):
            created = np.concatenate([parse_versions(fragment.created, count, file=""), created])
        following += new
        fragments.append(
            replace(
                fragment,
                row_ids=serialise_ids(ids),
                created=serialise_versions(created if len(created) == len(ids) else updated),
                last_updated=serialise_versions(updated),
            )
        )
    return replace(manifest, fragments=tuple(fragments), next_row_id=following)


def _with_updates(newest: Manifest, following: Manifest, operation: op.Operation) -> tuple[Fragment, ...]:
    """Return the fragments, with a new last-updated version if their files changed."""
    if not following.has_stable_row_ids or not isinstance(operation, op.Merge | op.Update | op.DataReplacement):
        return following.fragments
    before = {f.id: {file.path for file in f.files} for f in newest.fragments}
    offsets = operation.updated_fragment_offsets if isinstance(operation, op.Update) else {}

    def current(fragment: Fragment) -> Fragment:
        if {file.path for file in fragment.files} <= before.get(fragment.id, set()):
            return fragment
        versions = np.full(fragment.physical_rows, following.version, np.uint64)
        past = fragment.last_updated
        if fragment.id in offsets and (past is None or isinstance(past, bytes)):
            unchanged = np.ones(len(versions), np.bool_)
            unchanged[np.array(BitMap.deserialize(offsets[fragment.id]), np.int64)] = False
            versions[unchanged] = 1 if past is None else parse_versions(past, len(versions), file="")[unchanged]
        return replace(fragment, last_updated=serialise_versions(versions)) if len(versions) else fragment

    return tuple(map(current, following.fragments))


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
            field_ids = {f.id for f in newest.schema.walk()}
            without_column = [i.name for i in added if not set(i.fields) <= field_ids]
            if without_column:
                raise CommitConflictError(
                    f"the column of index {without_column[0]} was dropped by another commit", version=newest.version
                )
            names, ids = {i.name for i in added}, {i.uuid for i in dropped}
            gone = [i.name for i in dropped if i.uuid not in {present.uuid for present in newest.indices}]
            if gone:
                # Otherwise the dropped index would come back, with the files of its replacement.
                raise CommitConflictError(
                    f"index {gone[0]} was dropped or replaced by another commit",
                    help="read the newest version and repeat the change",
                    version=newest.version,
                )
            others = [i for i in newest.indices if i.name not in names and i.uuid not in ids]
            return replace(newest, indices=(*others, *added))
        case op.Merge(fragments, schema):
            others = [i for i in newest.indices if set(i.fields) <= set(schema.field_ids)]
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
        case op.Project(schema):
            remaining, metadata = set(schema.field_ids), newest.schema.metadata
            return replace(
                newest,
                schema=replace(schema, metadata=metadata).with_dictionaries(newest.schema.dictionaries),
                fragments=with_files_of(newest.fragments, schema),
                indices=tuple(i for i in newest.indices if set(i.fields) <= remaining),
            )
        case op.UpdateConfig() as update:
            return configured(newest, update)
        case op.DataReplacement(replacements):
            return _with_replacements(newest, replacements)
        case op.UpdateBases(bases):
            return replace(newest, base_paths=_with_bases(newest, bases))
        case op.ReserveFragments(count):
            return replace(newest, max_fragment_id=_last_id(newest) + count)
    raise InvalidArgumentError(f"{operation!r} cannot be committed")


def _last_id(manifest: Manifest) -> int:
    """The highest fragment id in use; -1 if there is none."""
    if manifest.max_fragment_id >= 0:
        return manifest.max_fragment_id
    # Older writers omit it even if fragment 0 was removed: only an index could confuse the next one with it.
    return 0 if any(i.fragment_bitmap is None or 0 in i.fragment_bitmap for i in manifest.indices) else -1


def _numbered(fragments: Iterable[Fragment], last: int) -> tuple[tuple[Fragment, ...], int]:
    """Number new fragments after ``last``; reserved ids are kept."""
    numbered = []
    for fragment in fragments:
        if fragment.id == 0:
            last += 1
            fragment = replace(fragment, id=last)
        numbered.append(fragment)
    return tuple(numbered), max([last, *(f.id for f in numbered)])


def _with_bases(newest: Manifest, new: Iterable[BasePath]) -> tuple[BasePath, ...]:
    """Add base paths.  Raises ``CommitConflictError`` for an id, path or name that already exists."""
    new = tuple(new)
    problem = duplicate_base((*newest.base_paths, *new)) if new else None
    if problem is not None:
        raise CommitConflictError(
            problem, help="read the newest version: base_paths() lists its base paths", version=newest.version
        )
    return (*newest.base_paths, *new)


def _check_bases(base_paths: Iterable[BasePath], new: Iterable[Fragment]) -> None:
    """Raise ``CommitConflictError`` for data files at base paths that do not exist."""
    ids = {file.base_id for fragment in new for file in fragment.files if file.base_id is not None}
    missing = ids - {base.id for base in base_paths}
    if missing:
        raise CommitConflictError(
            f"new data files are at base path {min(missing)}, which does not exist",
            help="base_paths() of the newest version lists its base paths: write the files again",
        )


def _appended(newest: Manifest, present: tuple[Fragment, ...], new: Iterable[Fragment]) -> Manifest:
    added, last = _numbered(new, _last_id(newest))
    _check_bases(newest.base_paths, added)
    both = {f.id for f in present} & {f.id for f in added}
    if both:
        raise CommitConflictError(f"fragment {min(both)} to be added already exists", version=newest.version)
    return replace(newest, fragments=(*present, *added), max_fragment_id=max(last, newest.max_fragment_id))


def _replaced(newest: Manifest, updated: Iterable[Fragment], removed: Iterable[int]) -> tuple[Fragment, ...]:
    by_id, removed_ids = {f.id: f for f in updated}, set(removed)
    missing = (by_id.keys() | removed_ids) - {f.id for f in newest.fragments}
    if missing:
        raise CommitConflictError(
            f"fragment {min(missing)} no longer exists",
            help="read the newest version and repeat the change",
            version=newest.version,
        )
    return tuple(by_id.get(f.id, f) for f in newest.fragments if f.id not in removed_ids)


def _without_stale(
    indices: tuple[IndexMetadata, ...], modified: tuple[int, ...], updated: Iterable[Fragment]
) -> tuple[IndexMetadata, ...]:
    """Remove from the indices the fragments whose rows have new values in indexed fields."""
    ids = FrozenBitMap([f.id for f in updated])

    def current(index: IndexMetadata) -> IndexMetadata | None:
        if set(modified).isdisjoint(index.fields):
            return index
        if index.fragment_bitmap is None:  # it covers these fragments, too
            return None
        moved = None if index.moved is None else index.moved - ids
        return replace(index, fragment_bitmap=index.fragment_bitmap - ids, moved=moved)

    return tuple(i for i in map(current, indices) if i is not None)


def _rewritten(newest: Manifest, rewrite: op.Rewrite) -> Manifest:
    fragments, last = list(newest.fragments), _last_id(newest)
    groups: list[tuple[set[int], tuple[Fragment, ...]]] = []
    for group in rewrite.groups:
        ids = {f.id for f in group.old_fragments}
        if not ids or not ids <= {f.id for f in fragments}:
            raise CommitConflictError("a fragment that was compacted no longer exists", version=newest.version)
        new, last = _numbered(group.new_fragments, last)
        fragments = [*(f for f in fragments if f.id not in ids), *new]
        groups.append((ids, new))
    new_ids = {i.old_id: i for i in rewrite.rewritten_indices}
    stable = newest.has_stable_row_ids
    indices = [_moved(i, new_ids.get(i.uuid), groups, stable=stable) for i in newest.indices]
    return replace(
        newest,
        fragments=tuple(fragments),
        indices=tuple(i for i in indices if i is not None),
        max_fragment_id=max(last, newest.max_fragment_id),
    )


def _moved(
    index: IndexMetadata,
    rewritten: op.RewrittenIndex | None,
    groups: list[tuple[set[int], tuple[Fragment, ...]]],
    *,
    stable: bool,
) -> IndexMetadata | None:
    """Adapt an index to a rewrite: it covers new fragments if it was rewritten, or rows keep their ids.

    Without a fragment bitmap, it is dropped unless it was rewritten.
    """
    if index.fragment_bitmap is None:
        return None if rewritten is None else _renamed(index, rewritten)
    covered = BitMap(index.fragment_bitmap)
    touched = False
    for old, new in groups:
        if covered & BitMap(old):
            touched = True
            whole = BitMap(old) <= covered
            covered -= BitMap(old)
            if whole and ((stable and not index.by_address) or rewritten is not None):
                covered |= BitMap([f.id for f in new])
    if not touched:
        return index
    moved = index if rewritten is None else _renamed(index, rewritten)
    return replace(moved, fragment_bitmap=FrozenBitMap(covered))


def _renamed(index: IndexMetadata, rewritten: op.RewrittenIndex) -> IndexMetadata:
    """Build the entry of an index with new files, without the sizes and other properties of the old ones."""
    version = None if index.index_version is None else rewritten.new_index_version
    details = None if index.details is None else rewritten.new_index_details or index.details
    return replace(
        index, uuid=rewritten.new_id, details=details, index_version=version, extra=b"", files=(), base_id=None
    )


def with_files_of(fragments: Iterable[Fragment], schema: LanceSchema) -> tuple[Fragment, ...]:
    """Drop data files without a field of the schema; each fragment keeps at least one file, for its rows."""
    ids = set(schema.field_ids)
    return tuple(
        replace(one, files=tuple(f for f in one.files if ids.intersection(f.fields)) or one.files[:1])
        for one in fragments
    )


def configured(newest: Manifest, update: op.UpdateConfig) -> Manifest:
    """Apply changes of the configuration and of metadata.  Raises ``ConflictError`` if a field no longer exists."""
    changed = newest
    if update.config is not None:
        changed = replace(changed, config=update.config.apply(newest.config))
    if update.table_metadata is not None:
        changed = replace(changed, table_metadata=update.table_metadata.apply(newest.table_metadata))
    schema = newest.schema
    if update.schema_metadata is not None:
        schema = replace(schema, metadata=_encoded(update.schema_metadata.apply(_decoded(schema.metadata))))
    unknown = [id for id in update.field_metadata if schema.by_id(id) is None]
    if unknown:
        raise CommitConflictError(f"field {unknown[0]} no longer exists", version=newest.version)

    if update.field_metadata:
        fields = [(f, update.field_metadata[f.id]) for f in schema.walk() if f.id in update.field_metadata]
        new = {f.id: replace(f, metadata=_encoded(change.apply(_decoded(f.metadata)))) for f, change in fields}
        schema = replace(schema, fields=tuple(f.swapped(new) for f in schema.fields))
    return replace(changed, schema=schema)


#: How to decode and encode metadata, which need not be UTF-8.
ANY_BYTES = "surrogateescape"


def _decoded(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    return {k.decode(errors=ANY_BYTES): v.decode(errors=ANY_BYTES) for k, v in metadata.items()}


def _encoded(metadata: Mapping[str, str]) -> dict[bytes, bytes]:
    return {k.encode(errors=ANY_BYTES): v.encode(errors=ANY_BYTES) for k, v in metadata.items()}


def _with_replacements(newest: Manifest, replacements: Iterable[tuple[int, DataFile]]) -> Manifest:
    """Replace data files with the same fields."""
    new: dict[int, list[DataFile]] = {}
    for id, file in replacements:
        new.setdefault(id, []).append(file)
    missing = new.keys() - {f.id for f in newest.fragments}
    if missing:
        raise CommitConflictError(f"fragment {min(missing)} no longer exists", version=newest.version)
    fragments = []
    for fragment in newest.fragments:
        files = fragment.files
        for file in new.get(fragment.id, ()):
            files = (*without_fields(files, set(file.fields)), file)
        fragments.append(replace(fragment, files=files))
    modified = tuple({id for files in new.values() for file in files for id in file.fields})
    touched = [f for f in newest.fragments if f.id in new]
    return replace(newest, fragments=tuple(fragments), indices=_without_stale(newest.indices, modified, touched))


def without_fields(files: Iterable[DataFile], ids: Collection[int]) -> tuple[DataFile, ...]:
    """Mark fields of data files as removed; drop files without other fields."""
    marked = (replace(f, fields=tuple(TOMBSTONE if id in ids else id for id in f.fields)) for f in files)
    return tuple(f for f in marked if any(id != TOMBSTONE for id in f.fields))


def carried(fragments: Iterable[Fragment], ids: Ids, created: Ids, updated: Ids | None = None) -> tuple[Fragment, ...]:
    """Give new fragments the ids and versions of rows moved into them; without ``updated``, that of the commit."""
    moved, at = [], 0
    for fragment in fragments:
        rows = slice(at, at + fragment.physical_rows)
        at += fragment.physical_rows
        if len(ids[rows]):
            fragment = replace(
                fragment,
                row_ids=serialise_ids(ids[rows]),
                created=serialise_versions(created[rows]),
                last_updated=None if updated is None else serialise_versions(updated[rows]),
            )
        moved.append(fragment)
    return tuple(moved)
