"""Statistics from a batch of footers equal those of each file alone."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SOAK
from tests.mutations import mutated_parquet
from trilake.delta.commands.maintenance.convert_footers import Footer, FooterReader
from trilake.errors import TrilakeError
from trilake.parquet.footer_walk import FEWEST
from trilake.storage.memory import MemoryStore

_BITS = Random(0).getrandbits


def _float(random: Random) -> float:
    return random.choice((0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e300, 5e-324, random.random()))


def _text(random: Random) -> str:
    return random.choice(("", "a", "é" * 40, "\U0010ffff" * 33, "x" * 31 + "\U0010ffff", "a" * random.randrange(50)))


def _instant(random: Random) -> dt.datetime:
    start = dt.datetime(1, 1, 2, tzinfo=dt.UTC) if random.random() < 0.3 else dt.datetime(2024, 5, 6, tzinfo=dt.UTC)
    return start + dt.timedelta(microseconds=random.randrange(10**10))


def _decimal(digits: int, scale: int) -> Any:
    return lambda random: decimal.Decimal(f"{random.randrange(-(10**digits) + 1, 10**digits)}E-{scale}")


#: Columns: the type and a value generator of each.
COLUMNS: Mapping[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), lambda r: r.randrange(-128, 128)),
    "int16": (pa.int16(), lambda r: r.randrange(-(2**15), 2**15)),
    "int32": (pa.int32(), lambda r: r.choice((-(2**31), 2**31 - 1, 0, r.randrange(99)))),
    "int64": (pa.int64(), lambda r: r.choice((-(2**63), 2**63 - 1, 0, r.randrange(99)))),
    "float": (pa.float32(), lambda r: r.choice((0.0, -0.0, 1.5, math.inf, math.nan))),
    "double": (pa.float64(), _float),
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "text": (pa.string(), _text),
    "binary": (pa.binary(), lambda r: bytes(r.randrange(256) for _ in range(r.randrange(4)))),
    "date": (pa.date32(), lambda r: dt.date(1, 1, 1) + dt.timedelta(r.randrange(3_600_000))),
    "ms": (pa.timestamp("ms"), lambda r: _instant(r).replace(microsecond=r.randrange(1000) * 1000, tzinfo=None)),
    "us": (pa.timestamp("us"), lambda r: _instant(r).replace(tzinfo=None)),
    "utc": (pa.timestamp("us", "UTC"), _instant),
    "short decimal": (pa.decimal128(9, 2), _decimal(9, 2)),
    "long decimal": (pa.decimal128(18, 0), _decimal(18, 0)),
    "wide decimal": (pa.decimal128(38, 10), _decimal(38, 10)),
    "list": (pa.list_(pa.int32()), lambda r: [1] * r.randrange(3)),
    "map": (pa.map_(pa.string(), pa.int64()), lambda r: [("k", 1)] * r.randrange(2)),
    "struct": (
        pa.struct([("a", pa.int64()), ("s", pa.struct([("t", pa.string())]))]),
        lambda r: {"a": r.randrange(9), "s": {"t": _text(r)}},
    ),
}

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"row_group_size": 3},
    {"store_decimal_as_integer": True},
    {"version": "1.0"},
    {"use_dictionary": False, "write_page_index": True},
    {"data_page_version": "2.0", "store_schema": False},
    {"use_deprecated_int96_timestamps": True},
    {"write_statistics": False},
)


def _table(random: Random, names: list[str]) -> pa.Table:
    rows = random.randrange(0, 12)
    columns: dict[str, pa.Array] = {}
    for name in names:
        kind, make = COLUMNS[name]
        nulls = random.choice((0.0, 0.0, 0.4, 1.0))
        columns[name] = pa.array([None if random.random() < nulls else make(random) for _ in range(rows)], kind)
    return pa.table(columns)


def _written(table: pa.Table, options: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _store(files: list[bytes]) -> tuple[MemoryStore, list[str]]:
    store = MemoryStore()
    keys = [f"f{n}.parquet" for n in range(len(files))]
    for key, data in zip(keys, files, strict=True):
        store.put(key, data)
    return store, keys


def _alone(reader: FooterReader, key: str) -> Footer:
    (footer,) = reader([key])  # too few for a batch
    return footer


@pytest.mark.parametrize("options", range(len(OPTIONS)))
@pytest.mark.parametrize("names", [*([name] for name in COLUMNS), list(COLUMNS)], ids=lambda names: names[-1])
def test_batch_statistics_match_single_files(names: list[str], options: int) -> None:
    random = Random(f"{names} {options}")
    tables = [_table(random, names) for _ in range(3 * FEWEST)]
    store, keys = _store([_written(table, OPTIONS[options]) for table in tables])
    reader = FooterReader(store, {})
    assert reader(keys) == [_alone(reader, key) for key in keys]


def test_files_of_several_schemas_and_writers_are_separated() -> None:
    random = Random(5)
    shapes = [["int64", "text"], ["int64"], ["text", "int64"], ["utc", "struct"]]
    files = [_written(_table(random, random.choice(shapes)), random.choice(OPTIONS)) for _ in range(300)]
    store, keys = _store(files)
    reader = FooterReader(store, {"delta.dataSkippingNumIndexedCols": "2"})
    assert reader(keys) == [_alone(reader, key) for key in keys]


def test_footers_with_one_layout_are_read_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of a conversion depends on this: of many files of one writer, Arrow opens only a few."""
    opened: list[str] = []
    alone = FooterReader._alone

    def counted(self: FooterReader, end: Any, last: Any) -> Any:
        opened.append(end.key)
        return alone(self, end, last)

    monkeypatch.setattr(FooterReader, "_alone", counted)
    random = Random(3)
    dense = [name for name in COLUMNS if name not in ("float", "double")]  # bounds with NaN are left to Arrow
    rows = {name: [COLUMNS[name][1](random) for _ in range(20)] for name in dense}
    tables = [
        pa.table({name: pa.array(random.sample(rows[name], 10), COLUMNS[name][0]) for name in dense})
        for _ in range(100)
    ]
    for options in OPTIONS:
        opened.clear()
        store, keys = _store([_written(table, options) for table in tables])
        footers = FooterReader(store, {})(keys)
        assert len(footers) == 100
        assert len(set(opened)) <= 25, options


@pytest.mark.parametrize("seed", range(12 if SOAK else 4))
def test_damaged_footer_behaves_as_in_a_single_file(seed: int) -> None:
    """A damaged footer gives the same error or statistics as when read alone."""
    random = Random(seed)
    names = ["int32", "text", "us", "struct"]
    tables = [_table(random, names) for _ in range(4)]
    whole = [_written(random.choice(tables), {}) for _ in range(40)]
    for _ in range(25):
        files = [mutated_parquet(data, random) if random.random() < 0.1 else data for data in whole]
        store, keys = _store(files)
        reader = FooterReader(store, {})
        expected: list[Footer] = []
        errors: dict[str, str] = {}
        for key in keys:
            try:
                expected.append(_alone(reader, key))
            except TrilakeError as e:
                errors[str(e)] = key
        if errors:
            with pytest.raises(TrilakeError) as info:
                reader(keys)
            assert str(info.value) in errors
        else:
            assert reader(keys) == expected
