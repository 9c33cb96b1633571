"""``_last_checkpoint``: the hint that saves listing a long log, and its checksum.

Protocol: *Last Checkpoint File* and *JSON checksum*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import orjson

from trilake.storage.base import ObjectMeta


def canonical_form(value: Any) -> str:
    """The canonicalised JSON that the checksum covers; a top-level ``checksum`` key is left out.

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
    import hashlib  # loads OpenSSL

    return hashlib.md5(canonical_form(value).encode(), usedforsecurity=False).hexdigest()


def _walk(value: Any, path: str, out: list[tuple[str, str]]) -> None:
    if isinstance(value, str):  # most values
        out.append((path, _text(value)))
    elif isinstance(value, dict | Mapping | list):
        named = enumerate(value) if isinstance(value, list) else ((_text(str(k)), v) for k, v in value.items())
        for name, inner in named:
            _walk(inner, f"{path}+{name}" if path else str(name), out)
    else:
        out.append((path, orjson.dumps(value).decode()))


@lru_cache(maxsize=1024)
def _text(value: str) -> str:
    return f'"{quote(value, safe="-._~")}"'


@dataclass(frozen=True)
class CheckpointHint:
    """The content of ``_last_checkpoint``; a count is ``None`` if it is missing or invalid."""

    version: int
    size_in_bytes: int | None = None
    num_add_files: int | None = None
    #: Name of the top-level file of a v2 checkpoint, and the names of its sidecars.
    path: str | None = None
    sidecars: frozenset[str] | None = None

    def differences(self, files: Sequence[ObjectMeta], sidecars: Sequence[str], num_add_files: int) -> list[str]:
        """Where the hint differs from the checkpoint that it names; empty for another writer's checkpoint."""
        if self.path is not None and self.path not in {f.key.rpartition("/")[2] for f in files}:
            return []  # a version may have two checkpoints
        out = []
        if self.sidecars is not None and self.sidecars != set(sidecars):
            out.append(
                f"{len(self.sidecars)} sidecars, of which the checkpoint does not name"
                f" {len(self.sidecars - set(sidecars))}"
            )
        if self.num_add_files is not None and self.num_add_files != num_add_files:
            out.append(f"numOfAddFiles {self.num_add_files}, not {num_add_files}")
        # Another writer, whose clock keeps other tombstones, may complete a multi-part checkpoint later.
        alone = len(files) == 1 and not sidecars
        if alone and self.size_in_bytes is not None and self.size_in_bytes != sum(f.size for f in files):
            out.append(f"sizeInBytes {self.size_in_bytes}, not {sum(f.size for f in files)}")
        return out


@lru_cache(maxsize=32)
def read_hint(data: bytes) -> CheckpointHint | None:
    """Parse ``_last_checkpoint``; ``None`` if the file is damaged, since it is only a hint."""
    try:
        hint = orjson.loads(data)
        version = hint["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if _count(version) is None:
        return None
    value = hint.get("checksum")
    try:
        if value is not None and value != checksum(hint):
            return None
    except (RecursionError, UnicodeError):  # JSON nested as deep as its parser allows
        return None
    v2 = hint.get("v2Checkpoint")
    v2 = v2 if isinstance(v2, dict) else {}
    path, sidecars = v2.get("path"), v2.get("sidecarFiles")
    names = [s.get("path") for s in sidecars if isinstance(s, dict)] if isinstance(sidecars, list) else None
    return CheckpointHint(
        version,
        _count(hint.get("sizeInBytes")),
        _count(hint.get("numOfAddFiles")),
        path if isinstance(path, str) else None,
        None if names is None else frozenset(unquote(n).rpartition("/")[2] for n in names if isinstance(n, str)),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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
    """The content of ``_last_checkpoint`` with its checksum; ``size`` counts actions, ``size_in_bytes`` bytes."""
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
