"""Columns of every type for files written by pylance: values by type, nulls by pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Rng = np.random.Generator
Make = Callable[[Rng, int], list[Any]]


def _ints(low: int, high: int) -> Make:
    return lambda rng, n: rng.integers(low, high, n).tolist()


def _strings(least: int, most: int, letters: str = "abcdefgh ") -> Make:
    def make(rng: Rng, n: int) -> list[Any]:
        sizes = rng.integers(least, most + 1, n)
        codes = rng.integers(0, len(letters), int(sizes.sum()))
        text = "".join(letters[c] for c in codes.tolist())
        ends = np.cumsum(sizes).tolist()
        return [text[e - s : e] for e, s in zip(ends, sizes.tolist(), strict=True)]

    return make


def _bytes(make: Make) -> Make:
    return lambda rng, n: [value.encode() for value in make(rng, n)]


def _few(make: Make, distinct: int) -> Make:
    def few(rng: Rng, n: int) -> list[Any]:
        values = make(rng, distinct)
        return [values[i] for i in rng.integers(0, distinct, n).tolist()]

    return few


def _lists(item: Make, least: int, most: int, *, nulls: float = 0.0) -> Make:
    def make(rng: Rng, n: int) -> list[Any]:
        sizes = rng.integers(least, most + 1, n)
        flat = item(rng, int(sizes.sum()))
        if nulls:
            flat = [None if gone else v for v, gone in zip(flat, rng.random(len(flat)) < nulls, strict=True)]
        ends = np.cumsum(sizes).tolist()
        return [flat[e - s : e] for e, s in zip(ends, sizes.tolist(), strict=True)]

    return make


def _nulls(item: Make, share: float = 0.3) -> Make:
    def make(rng: Rng, n: int) -> list[Any]:
        return [None if gone else v for v, gone in zip(item(rng, n), rng.random(n) < share, strict=True)]

    return make


def _struct(**fields: Make) -> Make:
    def make(rng: Rng, n: int) -> list[Any]:
        columns = {name: field(rng, n) for name, field in fields.items()}
        return [{name: column[i] for name, column in columns.items()} for i in range(n)]

    return make


def _map(key: Make, value: Make, most: int) -> Make:
    pairs = _lists(lambda rng, n: list(zip(key(rng, n), value(rng, n), strict=True)), 0, most)
    return lambda rng, n: [dict(row) and list(dict(row).items()) for row in pairs(rng, n)]


def _runs(make: Make, mean: int) -> Make:
    def runs(rng: Rng, n: int) -> list[Any]:
        values = make(rng, n // mean + 2)
        at = np.sort(rng.integers(0, len(values), n)).tolist()
        return [values[i] for i in at]

    return runs


def _constant(value: Any) -> Make:
    return lambda rng, n: [value] * n


def _floats(rng: Rng, n: int) -> list[Any]:
    return rng.standard_normal(n).astype(np.float32).tolist()


SHORT = _strings(0, 12)
LONG = _strings(300, 700)
SMALL = _ints(0, 100)
WIDE = _ints(-(1 << 62), 1 << 62)
BOOLS: Make = lambda rng, n: (rng.random(n) < 0.5).tolist()  # noqa: E731
HALVES: Make = lambda rng, n: np.float16(rng.random(n)).tolist()  # noqa: E731


def _decimals(digits: int) -> Make:
    import decimal

    return lambda rng, n: [decimal.Decimal(int(v)).scaleb(-2) for v in rng.integers(-(10**digits), 10**digits, n)]


#: Name -> (type, values).
COLUMNS: dict[str, tuple[pa.DataType, Make]] = {
    **{f"int{b}": (getattr(pa, f"int{b}")(), _ints(-(1 << (b - 1)), (1 << (b - 1)) - 1)) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (getattr(pa, f"uint{b}")(), _ints(0, 1 << (b - 1))) for b in (8, 16, 32, 64)},
    **{f"small{b}": (getattr(pa, f"int{b}")(), SMALL) for b in (8, 16, 32, 64)},
    "large offset": (pa.int64(), _ints(10**15, 10**15 + 1000)),
    "float16": (pa.float16(), HALVES),
    "float32": (pa.float32(), _floats),
    "float64": (pa.float64(), _floats),
    "bool": (pa.bool_(), BOOLS),
    "string": (pa.string(), SHORT),
    "string urls": (pa.string(), lambda rng, n: [f"https://example.org/{v}/x?id={v}" for v in SMALL(rng, n)]),
    "string unicode": (pa.string(), _strings(0, 30, "aéß漢字😀")),
    "string few": (pa.string(), _few(_strings(4, 12), 20)),
    "string 900": (pa.string(), _few(_strings(6, 30), 900)),
    "string long": (pa.string(), LONG),
    "string empty": (pa.string(), _constant("")),
    "string constant": (pa.string(), _constant("hello")),
    "string constant long": (pa.string(), _constant("hello" * 100)),
    "large_string": (pa.large_string(), SHORT),
    "large_string long": (pa.large_string(), LONG),
    "binary": (pa.binary(), _bytes(SHORT)),
    "binary long": (pa.binary(), _bytes(LONG)),
    "large_binary": (pa.large_binary(), _bytes(SHORT)),
    "fsb5": (pa.binary(5), _bytes(_strings(5, 5))),
    "fsb40": (pa.binary(40), _bytes(_strings(40, 40))),
    "fsb300": (pa.binary(300), _bytes(_strings(300, 300))),
    "date32": (pa.date32(), SMALL),
    "date64": (pa.date64(), lambda rng, n: [v * 86_400_000 for v in SMALL(rng, n)]),
    **{f"timestamp {u}": (pa.timestamp(u), _ints(0, 1 << 30)) for u in ("s", "ms", "us", "ns")},
    "timestamp zone": (pa.timestamp("us", "+02:00"), _ints(0, 1 << 50)),
    "time32": (pa.time32("ms"), SMALL),
    "time64": (pa.time64("ns"), SMALL),
    "duration": (pa.duration("us"), WIDE),
    "decimal128": (pa.decimal128(20, 2), _decimals(18)),
    "decimal256": (pa.decimal256(40, 2), _decimals(18)),
    "null": (pa.null(), _constant(None)),
    "constant int": (pa.int32(), _constant(7)),
    "constant float": (pa.float64(), _constant(0.5)),
    "constant bool": (pa.bool_(), _constant(True)),
    "constant decimal": (pa.decimal128(20, 2), lambda rng, n: _decimals(18)(np.random.default_rng(1), 1) * n),
    "constant fsb40": (pa.binary(40), _constant(b"0123456789" * 4)),
    "runs": (pa.int32(), _runs(WIDE_32 := _ints(0, 1 << 31), 50)),
    "runs long": (pa.int64(), _runs(WIDE, 700)),
    "runs short": (pa.int16(), _runs(_ints(-300, 300), 4)),
    "sequence": (pa.int64(), lambda rng, n: list(range(n))),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), _few(SHORT, 20)),
    "dictionary int8": (pa.dictionary(pa.int8(), pa.string()), _few(SHORT, 20)),
    "dictionary large": (pa.dictionary(pa.int64(), pa.large_string()), _few(SHORT, 300)),
    "dictionary numbers": (pa.dictionary(pa.uint16(), pa.int64()), _few(WIDE, 300)),
    "vector4": (pa.list_(pa.float32(), 4), _lists(_floats, 4, 4)),
    "vector128": (pa.list_(pa.float32(), 128), _lists(_floats, 128, 128)),
    "vector int8": (pa.list_(pa.int8(), 3), _lists(SMALL, 3, 3)),
    "vector bool": (pa.list_(pa.bool_(), 5), _lists(BOOLS, 5, 5)),
    "vector half": (pa.list_(pa.float16(), 200), _lists(HALVES, 200, 200)),
    "vector null items": (pa.list_(pa.int32(), 3), _lists(SMALL, 3, 3, nulls=0.2)),
    "vector96 null items": (pa.list_(pa.float64(), 96), _lists(_floats, 96, 96, nulls=0.2)),
    "vector of vectors": (pa.list_(pa.list_(pa.int16(), 2), 3), _lists(_lists(SMALL, 2, 2), 3, 3)),
    "vector of vectors null": (
        pa.list_(pa.list_(pa.int16(), 2), 3),
        _lists(_lists(SMALL, 2, 2, nulls=0.1), 3, 3, nulls=0.2),
    ),
    "list": (pa.list_(pa.int32()), _lists(SMALL, 0, 5)),
    "list not empty": (pa.list_(pa.int32()), _lists(SMALL, 1, 5)),
    "list null items": (pa.list_(pa.int32()), _lists(SMALL, 0, 5, nulls=0.3)),
    "list strings": (pa.list_(pa.string()), _lists(SHORT, 0, 4, nulls=0.1)),
    "list long strings": (pa.list_(pa.string()), _lists(LONG, 0, 2, nulls=0.1)),
    "list bool": (pa.list_(pa.bool_()), _lists(BOOLS, 0, 9)),
    "list long": (pa.list_(pa.int64()), _lists(WIDE, 0, 3000)),
    "large_list": (pa.large_list(pa.int32()), _lists(SMALL, 0, 5)),
    "list list": (pa.list_(pa.list_(pa.int32())), _lists(_lists(SMALL, 0, 3, nulls=0.1), 0, 3, nulls=0.2)),
    "list list list": (
        pa.list_(pa.list_(pa.list_(pa.string()))),
        _lists(_lists(_lists(SHORT, 0, 2), 0, 3, nulls=0.1), 0, 3, nulls=0.2),
    ),
    "list vectors": (pa.list_(pa.list_(pa.float32(), 4)), _lists(_lists(_floats, 4, 4), 0, 3, nulls=0.1)),
    "list vector96": (pa.list_(pa.list_(pa.float32(), 96)), _lists(_lists(_floats, 96, 96), 0, 3, nulls=0.1)),
    "list fsb300": (pa.list_(pa.binary(300)), _lists(_bytes(_strings(300, 300)), 0, 2, nulls=0.1)),
    "list dictionary": (pa.list_(pa.dictionary(pa.int32(), pa.string())), _lists(_few(SHORT, 20), 0, 3)),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), _struct(a=_nulls(SMALL), b=SHORT)),
    "struct struct": (
        pa.struct([("a", pa.struct([("x", pa.int8()), ("y", pa.float64())])), ("b", pa.bool_())]),
        _struct(a=_nulls(_struct(x=_nulls(SMALL), y=_floats)), b=BOOLS),
    ),
    "struct vector64": (
        pa.struct([("v", pa.struct([("w", pa.list_(pa.float32(), 64))]))]),
        _struct(v=_nulls(_struct(w=_nulls(_lists(_floats, 64, 64))))),
    ),
    "struct list": (
        pa.struct([("l", pa.list_(pa.int32())), ("a", pa.int8())]),
        _struct(l=_nulls(_lists(SMALL, 0, 3, nulls=0.2)), a=_nulls(SMALL)),
    ),
    "struct long strings": (
        pa.struct([("l", pa.list_(pa.string())), ("a", pa.string())]),
        _struct(l=_nulls(_lists(LONG, 0, 2, nulls=0.2)), a=_nulls(LONG)),
    ),
    "list struct": (
        pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])),
        _lists(_struct(a=_nulls(SMALL), b=SHORT), 0, 3, nulls=0.2),
    ),
    "list struct not null": (
        pa.list_(pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))])),
        _lists(_struct(a=_nulls(SMALL), l=_nulls(_lists(SHORT, 0, 3))), 0, 3),
    ),
    "list struct long": (
        pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])),
        _lists(_struct(a=_nulls(SMALL), b=LONG), 0, 2, nulls=0.2),
    ),
    "list struct list": (
        pa.list_(pa.struct([("l", pa.list_(pa.int32())), ("s", pa.string())])),
        _lists(_struct(l=_nulls(_lists(SMALL, 0, 3, nulls=0.1)), s=_nulls(SHORT)), 0, 3, nulls=0.2),
    ),
    "struct list struct list": (
        pa.struct([("x", pa.list_(pa.struct([("l", pa.list_(pa.int16())), ("s", pa.int64())])))]),
        _struct(x=_nulls(_lists(_struct(l=_nulls(_lists(SMALL, 0, 3)), s=SMALL), 0, 3, nulls=0.2))),
    ),
    "large_list struct": (
        pa.large_list(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.bool_(), 3))])),
        _lists(_struct(a=SMALL, b=_nulls(_lists(BOOLS, 3, 3))), 0, 3),
    ),
    "empty struct": (pa.struct([]), lambda rng, n: [{}] * n),
    "map": (pa.map_(pa.string(), pa.int32()), _map(SHORT, _nulls(SMALL), 4)),
    "list map": (pa.list_(pa.map_(pa.int32(), pa.string())), _lists(_map(SMALL, SHORT, 3), 0, 3, nulls=0.1)),
    "map struct list": (
        pa.map_(pa.int32(), pa.struct([("l", pa.list_(pa.int8()))])),
        _map(SMALL, _nulls(_struct(l=_lists(SMALL, 0, 3))), 3),
    ),
    "struct map": (pa.struct([("m", pa.map_(pa.string(), pa.int32()))]), _struct(m=_nulls(_map(SHORT, SMALL, 3)))),
    "vector struct": (
        pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]), 2),
        _lists(_struct(a=_nulls(SMALL), b=SHORT), 2, 2, nulls=0.1),
    ),
    "struct vector struct": (
        pa.struct([("v", pa.list_(pa.struct([("a", pa.int32())]), 3))]),
        _struct(v=_nulls(_lists(_struct(a=_nulls(SMALL)), 3, 3))),
    ),
    "list vector struct": (
        pa.list_(pa.list_(pa.struct([("l", pa.list_(pa.int8()))]), 2)),
        _lists(_lists(_struct(l=_nulls(_lists(SMALL, 0, 3))), 2, 2, nulls=0.2), 0, 3, nulls=0.2),
    ),
}

NULLS = ("none", "some", "one", "all")


def column(name: str, rows: int, nulls: str, seed: int = 0) -> pa.Array:
    """A column with nulls by a pattern: none, 30 percent, one, or all."""
    arrow, make = COLUMNS[name]
    rng = np.random.default_rng([seed, rows, *name.encode()])
    values = make(rng, rows)
    gone = {
        "none": np.zeros(rows, bool),
        "some": rng.random(rows) < 0.3,
        "one": np.arange(rows) == rows // 2,
        "all": np.ones(rows, bool),
    }[nulls]
    values = [None if g else v for v, g in zip(values, gone.tolist(), strict=True)]
    return pa.array(values, arrow)
