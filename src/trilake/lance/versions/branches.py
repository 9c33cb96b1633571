"""Branches, which newer writers make: the versions of a dataset that they begin from.

A branch is a dataset of its own below ``tree/``, which this library does not open.  Its manifests name files of the
version that it began from, so that version keeps its files as long as the branch is there.
``_refs/branches/<name>.json`` says where a branch began: in the main line, or in another branch, and so at last in the
main line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from trilake.errors import CorruptLogError, ObjectNotFoundError
from trilake.storage.base import Store

BRANCHES = "_refs/branches"
#: How often branches are listed anew where one goes while they are read.
_LOOKS = 5


def branch_points(store: Store) -> Mapping[int, str]:
    """The versions of the main line that branches come from, each with the name of one of them.

    Raises ``CorruptLogError`` for a branch that does not say where it began: what it needs cannot be told.
    """
    for left in reversed(range(_LOOKS)):
        keys = [m.key for m in store.list(BRANCHES) if m.key.endswith(".json") and m.key.count("/") == 2]
        try:
            contents = {
                _name(key): _parse(store, key, data.to_pybytes()) for key, data in zip(keys, store.read_many(keys))
            }
        except ObjectNotFoundError:
            if not left:
                raise
            continue  # somebody deleted one meanwhile
        return {_root(store, name, contents): name for name in contents}
    raise AssertionError("the last look raises")


def _name(key: str) -> str:
    """The name of a branch; a slash in it is ``%2F`` in its file's."""
    return unquote(key.rpartition("/")[2].removesuffix(".json"))


def _parse(store: Store, key: str, data: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise CorruptLogError(f"the branch is not JSON: {e}", file=f"{store.uri}/{key}") from e
    if not isinstance(content, dict):
        raise CorruptLogError("the branch is no JSON object", file=f"{store.uri}/{key}")
    return content


def _root(store: Store, name: str, contents: Mapping[str, dict[str, Any]]) -> int:
    """The version of the main line that a branch comes from, through others or not."""
    version = _first_of_identifier(contents[name])
    at, seen = name, set[str]()
    while version is None and at in contents and at not in seen:
        seen.add(at)
        parent = contents[at].get("parentBranch")
        if parent is None:
            version = contents[at].get("parentVersion")
            break
        at = parent if isinstance(parent, str) else ""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptLogError(
            f"the branch {name!r} does not say which version it began from",
            help="delete the branch, or clean up with the library that made it",
            file=f"{store.uri}/{BRANCHES}",
        )
    return version


def _first_of_identifier(content: Mapping[str, Any]) -> Any:
    """The version of the main line in the whole way to a branch, where its writer has noted that."""
    match content.get("identifier"):
        case {"version_mapping": [[version, *_], *_]}:
            return version
    return None
