"""Damage for decoder tests: bytes changed by a seed, so that failures can be reproduced."""

from __future__ import annotations

import json
from random import Random
from typing import Any

_WORDS = (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00")


def mutated(data: bytes, random: Random, start: int = 0) -> bytes:
    """``data`` with one to eight places from ``start`` on changed, removed or inserted."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if len(out) <= start:
            break
        at = random.randrange(start, len(out))
        kind = random.random()
        if kind < 0.4:
            out[at] ^= 1 << random.randrange(8)
        elif kind < 0.7:
            out[at] = random.randrange(256)
        elif kind < 0.8:
            del out[at]
        elif kind < 0.9:
            out.insert(at, random.randrange(256))
        else:
            out[at : at + 4] = random.choice(_WORDS)
    return bytes(out)


def footer_start(data: bytes) -> int:
    """The offset of a Parquet file's footer."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def mutated_parquet(data: bytes, random: Random) -> bytes:
    """A Parquet file with damage, five times out of six in its footer."""
    if random.random() < 5 / 6:
        return mutated(data, random, footer_start(data))
    end = footer_start(data)
    return mutated(data[:end], random) + data[end:]


_JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e400, 2**31, 2**63, 2**70, -(2**63) - 1, "", "x", "1", "é", "\x00", "%FF", "%",
    "../x", "/", "file:", "true", [], [1], ["x"], [None], [[]], [{}], {}, {"x": 1}, {"": None}, {"path": 1},
    {"type": "struct", "fields": [{}]}, "{}", "[]", "null", '{"type":"struct","fields":null}', "a" * 300,
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for k, v in items for p in _places(v, (*path, k)))]


def mutated_json(data: bytes, random: Random) -> bytes:
    """JSON lines in which one to three values have another type, are missing, duplicated or renamed."""
    lines = [json.loads(line) for line in data.splitlines()]
    for _ in range(random.choice((1, 1, 2, 3))):
        number = random.randrange(len(lines))
        lines[number] = _changed(lines[number], random)
        if random.random() < 0.1:
            lines.insert(random.randrange(len(lines) + 1), lines[number])
    return b"".join(json.dumps(v).encode() + b"\n" for v in lines)


def _changed(value: Any, random: Random) -> Any:
    path = random.choice(_places(value))
    if not path:
        return random.choice(_JUNK)
    top = value = json.loads(json.dumps(value))
    for key in path[:-1]:
        value = value[key]
    last, kind = path[-1], random.random()
    if isinstance(value[last], str) and value[last][:1] in ("{", "[") and kind < 0.6:
        value[last] = json.dumps(_changed(json.loads(value[last]), random))  # nested JSON strings
    elif kind < 0.75:
        value[last] = random.choice(_JUNK)
    elif kind < 0.85:
        del value[last]
    elif kind < 0.95 and isinstance(value, dict):
        value[random.choice(("x", "", str(last).upper(), "add", "remove", "metaData"))] = value[last]
    else:
        value[last] = [value[last]]
    return top
