"""A dataset as a stream: the fragments of a first version, then those that each later version adds.

An offset is a position in that sequence; its JSON is like that of a Delta stream::

    {"version": 7, "fragment": -1, "isStartingVersion": false, "startedAt": {"version": 3, "isStartingVersion": true}}

Everything up to and including position ``fragment`` of the fragments that ``version`` adds was read.  ``startedAt``
makes a first batch repeatable: Spark asks for the start again when the dataset may already be newer.

The operation of a version, in its transaction, names the fragments that it adds.  Without the transaction, they are the
fragments that the version before does not have.  Compactions and indices add nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from trilake.common.option_values import MAX_FILES, flag, positive, starting_version
from trilake.errors import CorruptLogError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.versions import Listing, list_versions
from trilake.storage.base import Store
from trilake.table.streams import StreamDataLossError, StreamError


@dataclass(frozen=True)
class LanceStreamOptions:
    """The start of a stream, the fragments of a batch, and the changes to skip; names as for a Delta stream."""

    starting_version: int | Literal["latest"] | None = None
    max_fragments: int | None = 1000
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    fail_on_data_loss: bool = True


@dataclass(frozen=True)
class LanceOffset:
    """A position in the stream; see the module docstring.

    >>> o = LanceOffset(3, -1, True, (3, True))
    >>> LanceOffset.from_json(o.to_json()) == o
    True
    """

    version: int
    fragment: int = -1
    snapshot: bool = False
    started_at: tuple[int, bool] | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LanceOffset:
        """Parse the JSON of a checkpoint.  Raises ``StreamError``."""
        try:
            start = data.get("startedAt")
            return LanceOffset(
                int(data["version"]),
                int(data["fragment"]),
                data.get("isStartingVersion") is True,
                None if start is None else (int(start["version"]), bool(start["isStartingVersion"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise StreamError(
                f"the checkpoint's offset {str(data)[:200]} is not an offset of a Lance dataset",
                help="use the checkpoint of a query that reads this dataset, or a new one",
            ) from e

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"version": self.version, "fragment": self.fragment, "isStartingVersion": self.snapshot}
        if self.started_at is not None:
            out["startedAt"] = {"version": self.started_at[0], "isStartingVersion": self.started_at[1]}
        return out

    @staticmethod
    def beginning(version: int, *, snapshot: bool) -> LanceOffset:
        """The position before the first fragment of a version."""
        return LanceOffset(version, -1, snapshot, (version, snapshot))

    def at(self, version: int, fragment: int = -1, *, snapshot: bool = False) -> LanceOffset:
        """Another position in the same stream."""
        return replace(self, version=version, fragment=fragment, snapshot=snapshot)

    @property
    def position(self) -> tuple[int, int, int]:
        """A sort key for offsets of one stream."""
        return self.version, int(not self.snapshot), self.fragment


class LanceStream:
    """A dataset read as a stream, with the columns of the version ``declared``."""

    def __init__(self, store: Store, declared: Manifest, options: LanceStreamOptions) -> None:
        self.store, self.options = store, options
        self.schema, self.version = declared.schema, declared.version
        self.until: int | None = None
        self._initial: LanceOffset | None = None
        self._manifests: dict[int, Manifest] = {}

    def stop_at_newest(self) -> None:
        """Leave later versions to the next run."""
        self.until = list_versions(self.store).latest

    def newest(self) -> LanceOffset:
        """The position after all committed versions."""
        return LanceOffset(list_versions(self.store).latest + 1)

    def initial(self) -> LanceOffset:
        """The first offset of a new stream.  Raises ``VersionNotFoundError`` for a version that does not exist."""
        if self._initial is None:
            version, newest = self.options.starting_version, transaction.load(self.store, self.until)
            if version is None:
                self._initial = LanceOffset.beginning(newest.version, snapshot=True)
            elif version == "latest":
                self._initial = LanceOffset.beginning(newest.version + 1, snapshot=False)
            else:
                transaction.load(self.store, version)
                self._initial = LanceOffset.beginning(version, snapshot=False)
        return self._initial

    def latest(self, start: LanceOffset, limit: int | None = None) -> LanceOffset:
        """Find the end of a batch of at most ``limit`` fragments; raises an error only after all fragments before it
        have been delivered.
        """
        listing, offset, count = list_versions(self.store), start, 0
        newest = listing.latest if self.until is None else min(self.until, listing.latest)
        if offset.version > newest + 1:
            raise StreamError(
                f"the checkpoint is at version {offset.version - 1}, but the newest version is {newest}",
                help="the dataset was recreated, or restored from a backup: use a new checkpoint",
                file=self.store.uri,
            )
        self._manifests = {v: m for v, m in self._manifests.items() if v >= offset.version - 1}
        while offset.version <= newest and (limit is None or count < limit):
            try:
                fragments = self._fragments(listing, offset)
            except StreamError:
                if count:
                    break  # deliver the fragments before the error first
                raise
            remaining = len(fragments) - offset.fragment - 1
            room = remaining if limit is None else min(remaining, limit - count)
            count += room
            if room < remaining:
                return offset.at(offset.version, offset.fragment + room, snapshot=offset.snapshot)
            offset = offset.at(offset.version + 1)
        return offset

    def batch(self, start: LanceOffset, end: LanceOffset) -> list[tuple[Fragment, LanceSchema]]:
        """The fragments between two offsets, each with the schema of its version."""
        if start.started_at is not None and end.started_at not in (None, start.started_at):
            assert end.started_at is not None
            start = LanceOffset.beginning(end.started_at[0], snapshot=end.started_at[1])
        listing, offset = list_versions(self.store), start
        out: list[tuple[Fragment, LanceSchema]] = []
        while offset.position < end.position:
            fragments = self._fragments(listing, offset)
            same = (offset.version, offset.snapshot) == (end.version, end.snapshot)
            stop = end.fragment + 1 if same else len(fragments)
            schema = self._manifest(listing, offset.version).schema if fragments else self.schema
            if schema.names != self.schema.names:  # an older version: missing columns are null
                schema = self.schema
            out += [(f, schema) for f in fragments[offset.fragment + 1 : stop]]
            if same:
                break
            offset = offset.at(offset.version + 1)
        return out

    def _manifest(self, listing: Listing, version: int) -> Manifest:
        if version not in self._manifests:
            self._manifests[version] = transaction.load(self.store, version, listing)
        return self._manifests[version]

    def _fragments(self, listing: Listing, offset: LanceOffset) -> tuple[Fragment, ...]:
        version = offset.version
        if version not in listing.versions:
            error = StreamDataLossError(
                f"the stream must continue with version {version}, which was cleaned up",
                file=self.store.uri,
                version=version,
            )
            if self.options.fail_on_data_loss:
                raise error
            return ()
        manifest = self._manifest(listing, version)
        self._check_schema(manifest)
        if offset.snapshot:
            return manifest.fragments
        before = self._manifest(listing, version - 1) if version - 1 in listing.versions else None
        return self._new_fragments(before, manifest)

    def _check_schema(self, manifest: Manifest) -> None:
        """Newer versions must have exactly the columns of the stream; older versions may lack some."""
        problems = manifest.schema.differences(self.schema, nullability=False)
        if manifest.version <= self.version:
            shared = [n for n in self.schema.names if n in manifest.schema.names]
            declared, current = self.schema.project(shared), manifest.schema.project(shared)
            problems = current.differences(declared, nullability=False)
        if problems:
            raise StreamError(
                f"the dataset's columns changed while it was being read: {'; '.join(problems)}",
                help="all rows before the change were delivered; call load() and start the query again on the same"
                " checkpoint; if that does not help, use a new checkpoint",
                file=self.store.uri,
                version=manifest.version,
            )

    def _new_fragments(self, before: Manifest | None, manifest: Manifest) -> tuple[Fragment, ...]:
        operation = self._operation(manifest)
        if isinstance(operation, op.Append):
            added = {file.path for f in operation.fragments for file in f.files}
            return tuple(f for f in manifest.fragments if any(file.path in added for file in f.files))
        if isinstance(operation, op.Rewrite | op.CreateIndex | op.ReserveFragments | op.Merge):
            return ()
        if before is None and manifest.version > 1:
            if not self.options.fail_on_data_loss:
                return ()
            raise StreamDataLossError(
                f"the changes of version {manifest.version} are unknown without the version before it",
                file=self.store.uri,
                version=manifest.version,
            )
        old = {} if before is None else {f.id: f for f in before.fragments}
        new = tuple(f for f in manifest.fragments if f.id not in old)
        removed = [f for i, f in old.items() if i not in {g.id for g in manifest.fragments}]
        common = {f.id: f for f in manifest.fragments if f.id in old}
        changed = [f for i, f in common.items() if f != old[i]]
        if isinstance(operation, op.Overwrite):
            # An overwrite may number fragments from 0 again.
            new, removed, changed = manifest.fragments, list(old.values()), []
        if not removed and not changed:
            return new
        if self.options.skip_change_commits or (self.options.ignore_deletes and not new):
            return ()
        if self.options.ignore_changes:
            return new
        raise StreamError(
            "rows were deleted or replaced in the source, which a stream of new rows cannot express",
            help="skipChangeCommits=true skips such versions, ignoreDeletes=true those that only delete,"
            " ignoreChanges=true delivers their new fragments; restart with one of these options",
            file=self.store.uri,
            version=manifest.version,
        )

    def _operation(self, manifest: Manifest) -> op.Operation | None:
        """The operation of a version; ``None`` if its transaction is missing or damaged."""
        try:
            stored = transaction.of_manifest(self.store, manifest)
        except CorruptLogError:
            return None
        return None if stored is None else stored.operation


def parse_options(options: Mapping[str, str]) -> LanceStreamOptions:
    """Parse options with the names of Delta streams.  Raises ``InvalidArgumentError``."""

    def is_on(name: str, *, default: bool = False) -> bool:
        return flag(name, options.get(name), default=default)

    return LanceStreamOptions(
        starting_version(options.get("startingVersion")),
        positive("maxFilesPerTrigger", options.get("maxFilesPerTrigger")) or MAX_FILES,
        is_on("ignoreDeletes"),
        is_on("ignoreChanges"),
        is_on("skipChangeCommits"),
        is_on("failOnDataLoss", default=True),
    )
