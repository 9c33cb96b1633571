"""Checks of manifests, the copy of the newest manifest, tags, fields and fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

from trilake.errors import ObjectNotFoundError, TrilakeError
from trilake.lance.verify.context import LanceContext
from trilake.lance.versions.versions import LATEST, TAGS, read_tags
from trilake.table.findings import Finding, unreadable

#: The repair step that restores the copy of the newest manifest.
COPY_LATEST = "lance.copy-latest-manifest"
_RESTORE = "restore the manifest from a backup, or an older version of the dataset"


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every manifest is readable and has the version in its name."""
    _ = table.manifests
    for version, error in table.bad_manifests.items():
        finding = unreadable("lance.manifest-unreadable", error)
        help = "restore the manifest from a backup, or read another version"
        yield replace(finding, help=help, file=table.listing.key(version), version=version)
    return len(table.listing.versions)


def latest(table: LanceContext) -> Generator[Finding, None, int]:
    """``_latest.manifest``, if present, is a copy of the newest manifest; old readers depend on it."""
    try:
        copy = table.store.read(LATEST)
    except ObjectNotFoundError:
        return 0
    newest = table.listing.latest
    if not table.store.read(table.listing.key(newest)).equals(copy):
        message = f"{LATEST} is not a copy of the manifest of version {newest}"
        help = "copy it again with trilake.repair: old readers read it as the newest version"
        where: dict[str, Any] = {"file": LATEST, "version": newest, "repair": COPY_LATEST}
        yield table.finding("latest-differs", message, help=help, severity="warning", **where)
    return 1


def tags(table: LanceContext) -> Generator[Finding, None, int]:
    """Every tag refers to an existing version."""
    try:
        tags = read_tags(table.store)
    except TrilakeError as e:
        yield unreadable("lance.tag-wrong", e)
        return 1
    for name, tag in tags.items():
        if tag.version not in table.listing_of(tag.branch).versions:
            of = "" if tag.branch is None else f" of branch {tag.branch!r}"
            message = f"the tag {name!r} refers to version {tag.version}{of}, which does not exist"
            help = "move the tag to an existing version, or delete it"
            yield table.finding("tag-wrong", message, help=help, file=f"{TAGS}/{name}.json", version=tag.version)
    return len(tags)


def fields(table: LanceContext) -> Generator[Finding, None, int]:
    """Field ids are unique, and every fragment has each field at most once and only fields of the schema."""
    wrong = partial(table.finding, "fields-wrong", help=_RESTORE)
    ids = Counter(table.manifest.schema.field_ids)
    for number in (n for n, count in ids.items() if count > 1):
        yield wrong(f"two fields have the id {number}")
    for fragment in table.manifest.fragments:
        counts = Counter(n for f in fragment.files for n in f.fields)
        for number, count in counts.items():
            if count > 1 and number in ids:
                message = f"fragment {fragment.id} has field {number} in {count} files"
                yield wrong(message, file=fragment.files[0].key)
        if fragment.files and not counts.keys() & ids.keys():
            yield wrong(f"fragment {fragment.id} has no field of the schema", file=fragment.files[0].key)
    return len(ids)


def fragments(table: LanceContext) -> Generator[Finding, None, int]:
    """Every fragment has files and at most as many deleted rows as rows, and every data file is used once."""
    wrong = partial(table.finding, "fragments-wrong", help=_RESTORE)
    manifest = table.manifest
    places = Counter(f.path for fragment in manifest.fragments for f in fragment.files)
    for path, count in places.items():
        if count > 1:
            message = f"the manifest lists the data file {count} times, so its rows would be duplicated"
            yield wrong(message, file=f"data/{path}")
    for fragment in manifest.fragments:
        deleted = fragment.deletion_file.num_deleted_rows if fragment.deletion_file is not None else 0
        if fragment.physical_rows and deleted > fragment.physical_rows:
            yield wrong(f"fragment {fragment.id} has {fragment.physical_rows} rows, but {deleted} deleted rows")
        if not fragment.files:
            yield wrong(f"fragment {fragment.id} has no data file")
    return len(manifest.fragments)
