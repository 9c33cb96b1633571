"""``_last_checkpoint``: the hint that spares listing a long log, and its checksum.

Protocol: *Last Checkpoint File* and *JSON checksum*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson


def canonical_form(value: Any) -> str:
    """The canonicalised JSON over which the checksum is computed; a top-level ``checksum`` key is left out.

    >>> canonical_form({"k1": "v1", "checksum": "x", "k3": 23})
    '"k1"="v1","k3"=23'
    """
    top = {k: v for k, v in value.items() if k != "checksum"} if isinstance(value, Mapping) else value
    pairs: list[tuple[str, str]] = []
    _walk(top, "", pairs)
    pairs.sort(key=lambda p: p[0].encode())
    return ",".join(f"{path}={leaf}" for path, leaf in pairs)


def checksum(value: Any) -> str:
    """MD5 of the canonical form, in hexadecimal."""
    return hashlib.md5(canonical_form(value).encode(), usedforsecurity=False).hexdigest()


def _walk(value: Any, path: str, out: list[tuple[str, str]]) -> None:
    if isinstance(value, Mapping):
        for k, v in value.items():
            _walk(v, _join(path, _text(str(k))), out)
    elif isinstance(value, list):
        for i, v in enumerate(value):
            _walk(v, _join(path, str(i)), out)
    else:
        out.append((path, _text(value) if isinstance(value, str) else orjson.dumps(value).decode()))


def _join(path: str, name: str) -> str:
    return f"{path}+{name}" if path else name


def _text(value: str) -> str:
    return f'"{quote(value, safe="-._~")}"'


def read_hint(data: bytes) -> int | None:
    """The version a ``_last_checkpoint`` points at, or ``None`` where the file is damaged: it is only a hint."""
    try:
        hint = orjson.loads(data)
        version = hint["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        return None
    stated = hint.get("checksum")
    try:
        return None if stated is not None and stated != checksum(hint) else version
    except RecursionError:  # JSON nested as deep as its parser lets through
        return None


def make_hint(
    version: int,
    *,
    size: int,
    size_in_bytes: int,
    num_add_files: int,
    parts: int | None = None,
    checkpoint_schema: Mapping[str, Any] | None = None,
    v2_checkpoint: Mapping[str, Any] | None = None,
) -> bytes:
    """The content of ``_last_checkpoint`` with its checksum; ``size`` counts actions, ``size_in_bytes`` bytes.

    ``v2_checkpoint`` names the top-level file of a checkpoint of version 2 and its sidecars.
    """
    hint: dict[str, Any] = {"version": version, "size": size}
    if parts is not None:
        hint["parts"] = parts
    hint |= {"sizeInBytes": size_in_bytes, "numOfAddFiles": num_add_files}
    if checkpoint_schema is not None:
        hint["checkpointSchema"] = checkpoint_schema
    if v2_checkpoint is not None:
        hint["v2Checkpoint"] = v2_checkpoint
    hint["checksum"] = checksum(hint)
    return orjson.dumps(hint)
