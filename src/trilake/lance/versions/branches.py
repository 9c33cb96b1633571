"""Branches: lines of versions that begin at a version of another line.

A branch is a separate dataset below ``tree/``.  Its manifests refer to files of its parent version by a base path, so
that version keeps its files as long as the branch exists.  ``_refs/branches/<name>.json`` at the root states the parent
of a branch: a version of the main line, or of another branch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

import orjson

from trilake.common.runtime import Runtime
from trilake.errors import CorruptLogError, InvalidArgumentError, ObjectExistsError, ObjectNotFoundError
from trilake.lance.file.errors import DatasetExistsError, DatasetVersionNotFoundError
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import BasePath, Fragment, Manifest, serialise_manifest, with_flags
from trilake.lance.versions.versions import (
    list_versions,
    manifest_key,
    parse_reference,
    read_references,
    set_metadata,
    string_map,
)
from trilake.storage import open_sibling
from trilake.storage.base import Store

BRANCHES, TREE = "_refs/branches", "tree"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*\Z")


@dataclass(frozen=True)
class Branch:
    """A branch, and its parent version.

    It began at ``parent_version`` (``None`` if its file does not state it) of ``parent_branch`` (``None``: the main
    line). ``identifier`` has, for each line on the way to it, the version at which it branched off, and an id.
    ``created`` is in seconds since the Unix epoch; ``metadata`` is set by users.
    """

    name: str
    parent_branch: str | None
    parent_version: int | None
    identifier: tuple[tuple[int, str], ...] = ()
    created: int | None = None
    manifest_size: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_branches(root: Store) -> Mapping[str, Branch]:
    """Read all branches, by name.  Raises ``CorruptLogError``."""
    return {branch.name: branch for branch in read_references(root, BRANCHES, _parse)}


def branch_points(root: Store, branch: str | None = None) -> Mapping[int, str]:
    """The versions of a line at which branches begin, with a branch each.

    Raises ``CorruptLogError`` for an unknown one.
    """
    branches = read_branches(root)
    points = {name: _point(root, name, branch, branches) for name in branches if name != branch}
    return {version: name for name, version in points.items() if version is not None}


def _point(root: Store, name: str, line: str | None, branches: Mapping[str, Branch]) -> int | None:
    """The version of a line from which a branch, or a branch before it, began; ``None`` if it is of another line."""
    if line is None and branches[name].identifier:
        return branches[name].identifier[0][0]
    at, seen = name, set[str]()
    while at in branches and at not in seen:
        seen.add(at)
        version, parent = branches[at].parent_version, branches[at].parent_branch
        if parent == line and version is not None:
            return version
        if parent is None:
            if version is not None:
                return None
            break
        at = parent
    if line is not None and branches[name].identifier:
        return None
    raise _no_parent(name, f"{root.uri}/{BRANCHES}")


def _no_parent(name: str, file: str) -> CorruptLogError:
    help = "delete the branch, or clean up with the library that created it"
    return CorruptLogError(f"the branch {name!r} has no parent version", help=help, file=file)


def _key(name: str) -> str:
    if name == "main" or _NAME.match(name) is None or ".." in name or name.endswith((".", ".lock")):
        raise InvalidArgumentError(
            f"{name!r} is not a valid branch name",
            help="use letters, digits, '.', '-', '_' and '/', beginning with a letter or digit; main is the main line",
        )
    return f"{BRANCHES}/{quote(name, safe='')}.json"


def _parse(root: Store, key: str, data: bytes) -> Branch:
    content = parse_reference(root, key, data, "branch")
    name = unquote(key.rpartition("/")[2].removesuffix(".json"))
    parent = content.get("parentBranch")
    identifier = _identifier(content.get("identifier"))
    if identifier is None or not isinstance(parent, str | None):
        raise _no_parent(name, f"{root.uri}/{key}")
    return Branch(
        name,
        parent,
        _number(content.get("parentVersion")),
        identifier,
        _number(content.get("createAt")),
        _number(content.get("manifestSize")),
        string_map(content),
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _identifier(value: Any) -> tuple[tuple[int, str], ...] | None:
    """Parse the versions on the way to a branch; ``None`` if they are damaged."""
    match value:
        case {"version_mapping": list(pairs)}:
            valid = [p for p in pairs if isinstance(p, list) and len(p) == 2 and _number(p[0]) is not None]
            return tuple((p[0], str(p[1])) for p in valid) if len(valid) == len(pairs) else None
    return ()


def branch_store(root: Store, branch: str | None) -> Store:
    """The store of a branch; for the main line, the root itself."""
    return root if branch is None else open_sibling(root, f"{root.uri}/{TREE}/{branch}")


def root_store(store: Store, branch: str | None) -> Store:
    """The store of the dataset that a branch belongs to."""
    below = f"/{TREE}/{branch}"
    if branch is None or not store.uri.endswith(below):
        return store
    return open_sibling(store, store.uri.removesuffix(below))


# --- creating and deleting -------------------------------------------------------------------------------------------


def clone_manifest(source: Manifest, path: str, *, branch: str | None, file: str, now_ns: int) -> Manifest:
    """Build the first manifest of a clone, which refers to the files of the source version at ``path``.

    ``branch`` is the name of the clone if it is a branch, ``file`` the name of its transaction file.
    """
    id = max((base.id for base in source.base_paths), default=-1) + 1
    base = BasePath(id, path, is_dataset_root=True, name=source.branch)
    return with_flags(
        replace(
            source,
            fragments=tuple(_elsewhere(fragment, id) for fragment in source.fragments),
            indices=tuple(i if i.base_id is not None else replace(i, base_id=id) for i in source.indices),
            base_paths=(*source.base_paths, base),
            branch=branch,
            transaction_file=file,
            timestamp_ns=now_ns,
            writer_version=Manifest.writer_version,
            tag="",
            transaction=None,
        )
    )


def _elsewhere(fragment: Fragment, id: int) -> Fragment:
    deletion = fragment.deletion_file
    return replace(
        fragment,
        files=tuple(f if f.base_id is not None else replace(f, base_id=id) for f in fragment.files),
        deletion_file=deletion if deletion is None or deletion.base_id is not None else replace(deletion, base_id=id),
    )


def clone(source: Manifest, store: Store, target: Store, runtime: Runtime, *, branch: str | None = None) -> Manifest:
    """Make a version of ``store`` the first one in ``target``, with shared files.  Raises ``TableExistsError``."""
    help = "choose another location or name"
    there = DatasetExistsError("a Lance dataset already exists here", help=help, file=target.uri)
    if list_versions(target).versions:
        raise there
    path = store.uri.removeprefix("file://") if store.uri.startswith("file:///") else store.uri
    operation = op.Clone(path, source.version, source.branch, branch)
    first = transaction.begin(source.version, operation, runtime)
    manifest = clone_manifest(source, path, branch=branch, file=first.file, now_ns=runtime.clock_ns())
    message = transaction.serialise(first)
    target.put_if_absent(f"{transaction.TRANSACTIONS}/{first.file}", message)
    if not manifest.storage_version.is_legacy:
        manifest = replace(manifest, transaction=message)
    try:
        target.put_if_absent(manifest_key(manifest.version, list_versions(store).scheme), serialise_manifest(manifest))
    except ObjectExistsError as e:
        raise there from e
    return manifest


def create_branch(root: Store, name: str, source: Manifest, runtime: Runtime) -> Manifest:
    """Begin a branch at a version; return its first manifest.  Raises ``InvalidArgumentError`` for its name."""
    key, branches = _key(name), read_branches(root)
    there = InvalidArgumentError(f"the branch {name!r} already exists", help="choose another name", file=root.uri)
    if name in branches:
        raise there
    store = branch_store(root, source.branch)
    manifest = clone(source, store, branch_store(root, name), runtime, branch=name)
    way = () if source.branch is None else branches[source.branch].identifier
    content = {
        "parentBranch": source.branch,
        "identifier": {"version_mapping": [*map(list, way), [source.version, runtime.new_id().replace("-", "")]]},
        "parentVersion": source.version,
        "createAt": runtime.clock_ns() // 10**9,
        "manifestSize": store.head(list_versions(store).key(source.version)).size,
        "metadata": {},
    }
    try:
        root.put_if_absent(key, orjson.dumps(content, option=orjson.OPT_INDENT_2))
    except ObjectExistsError as e:
        raise there from e
    return manifest


def branch_of(root: Store, name: str) -> Branch:
    """Read a branch.  Raises ``VersionNotFoundError``."""
    key = _key(name)
    try:
        return _parse(root, key, root.read(key).to_pybytes())
    except ObjectNotFoundError as e:
        raise DatasetVersionNotFoundError(f"the dataset has no branch {name!r}", file=root.uri) from e


def delete_branch(root: Store, name: str) -> None:
    """Delete a branch and its files.  Raises ``VersionNotFoundError``, and ``InvalidArgumentError`` with child
    branches.
    """
    branch_of(root, name)
    others = branch_points(root, name)
    if others:
        raise InvalidArgumentError(
            f"the branch {name!r} has the child branch {min(others.values())!r}",
            help=f"delete {min(others.values())!r} first",
            file=root.uri,
        )
    root.delete([_key(name)])
    inside = [other for other in read_branches(root) if other.startswith(f"{name}/")]
    keys = [m.key for m in root.list(f"{TREE}/{name}")]
    root.delete([k for k in keys if not any(k.startswith(f"{TREE}/{other}/") for other in inside)])


def set_branch_metadata(root: Store, name: str, metadata: Mapping[str, str]) -> None:
    """Replace the metadata of a branch."""
    branch_of(root, name)
    set_metadata(root, _key(name), metadata)
