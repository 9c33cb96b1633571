"""Checks of manifests, the copy of the newest, tags, and what the version's manifest says of fields and fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from trilake.errors import ObjectNotFoundError, TrilakeError
from trilake.lance.verify.context import LanceContext
from trilake.lance.versions.versions import LATEST, TAGS, read_tags
from trilake.table.findings import Finding, unreadable

#: The step of repair that copies the newest manifest again.
COPY_LATEST = "lance.copy-latest-manifest"


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every manifest can be read and is of the version that its name says."""
    _ = table.manifests
    for version, error in table.bad_manifests.items():
        finding = unreadable("lance.manifest-unreadable", error)
        yield Finding(
            finding.code,
            finding.message,
            "restore the manifest from a copy, or read another version",
            file=table.listing.key(version),
            version=version,
            details=finding.details,
        )
    return len(table.listing.versions)


def latest(table: LanceContext) -> Generator[Finding, None, int]:
    """``_latest.manifest``, where it is, is a copy of the newest manifest; other readers begin with it."""
    try:
        copy = table.store.read(LATEST)
    except ObjectNotFoundError:
        return 0
    newest = table.listing.latest
    if not table.store.read(table.listing.key(newest)).equals(copy):
        yield Finding(
            "lance.latest-differs",
            f"{LATEST} is no copy of the manifest of version {newest}",
            "let it be copied again (trilake.repair): readers of old take it for the newest version",
            severity="warning",
            file=LATEST,
            version=newest,
            repair=COPY_LATEST,
        )
    return 1


def tags(table: LanceContext) -> Generator[Finding, None, int]:
    """Every tag names a version that is there."""
    try:
        tags = read_tags(table.store)
    except TrilakeError as e:
        yield unreadable("lance.tag-wrong", e)
        return 1
    for name, tag in tags.items():
        if tag.version not in table.listing.versions:
            yield Finding(
                "lance.tag-wrong",
                f"the tag {name!r} names version {tag.version}, which is not there",
                "move the tag to a version that is there, or delete it",
                file=f"{TAGS}/{name}.json",
                version=tag.version,
            )
    return len(tags)


def fields(table: LanceContext) -> Generator[Finding, None, int]:
    """Fields have ids of their own, and each fragment has no field twice and none that the schema lacks."""
    manifest = table.manifest
    twice = [n for n, count in Counter(manifest.schema.field_ids).items() if count > 1]
    for number in twice:
        yield _field(table, f"two fields have the id {number}", None)
    known = set(manifest.schema.field_ids)
    for fragment in manifest.fragments:
        counts = Counter(n for f in fragment.files for n in f.fields)
        for number, count in counts.items():
            if count > 1 and number in known:
                yield _field(
                    table, f"fragment {fragment.id} has field {number} in {count} files", fragment.files[0].key
                )
        if fragment.files and not counts.keys() & known:
            yield _field(table, f"fragment {fragment.id} has no field of the schema", fragment.files[0].key)
    return len(known)


def _field(table: LanceContext, message: str, file: str | None) -> Finding:
    help_ = "restore the manifest from a copy, or an older version of the dataset"
    return Finding("lance.fields-wrong", message, help_, file=file, version=table.version)


def fragments(table: LanceContext) -> Generator[Finding, None, int]:
    """Every fragment has files, no data file is in two of them, and none has more deleted rows than rows."""
    manifest = table.manifest
    places = Counter(f.path for fragment in manifest.fragments for f in fragment.files)
    for path, count in places.items():
        if count > 1:
            yield _fragment(
                table, f"the data file is named {count} times: its rows would be read as often", f"data/{path}"
            )
    for fragment in manifest.fragments:
        deleted = fragment.deletion_file.num_deleted_rows if fragment.deletion_file is not None else 0
        if fragment.physical_rows and deleted > fragment.physical_rows:
            yield _fragment(
                table, f"fragment {fragment.id} has {fragment.physical_rows} rows, and {deleted} of them deleted", None
            )
        if not fragment.files:
            yield _fragment(table, f"fragment {fragment.id} has no data file", None)
    return len(manifest.fragments)


def _fragment(table: LanceContext, message: str, file: str | None) -> Finding:
    help_ = "restore the manifest from a copy, or an older version of the dataset"
    return Finding("lance.fragments-wrong", message, help_, file=file, version=table.version)
