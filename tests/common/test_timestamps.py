"""Timestamps as users write them."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest

import trilake
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.common.timestamps import timestamp_ms, timestamp_ns
from trilake.errors import InvalidArgumentError, VersionNotFoundError
from trilake.lance.commands.write import write
from trilake.storage.memory import MemoryStore

NS = 1_700_000_000_123_456_000
NO_TIMES = [
    True,
    1e18,
    10**400,
    float("nan"),
    float("inf"),
    [1],
    None,
    "soon",
    "20231114221320000",  # Python parses it as 21:32:00 of that day
    "2020-01-01-10:00",
    "20200101x10:00:00",
    b"2024-01-01",
    dt.date(2024, 1, 1),
    pd.NaT,
]


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (1_700_000_000, 1_700_000_000_000_000_000),
        (1_700_000_000.123456, NS),
        (-1.5, -1_500_000_000),
        (pd.Series([1_700_000_000.123456])[0], NS),
        ("2023-11-14T22:13:20.123456Z", NS),
        (" 2023-11-14 22:13:20.123456 ", NS),
        ("2023-11-14T23:13:20.123456+01:00", NS),
        (dt.datetime(2023, 11, 14, 22, 13, 20, 123456), NS),  # noqa: DTZ001 - without a zone it is UTC
        (pd.Timestamp(NS + 789, unit="ns", tz="UTC"), NS + 789),
    ],
)
def test_timestamp_is_parsed_exactly(value: object, ns: int) -> None:
    assert timestamp_ns(value) == ns  # type: ignore[arg-type]
    assert timestamp_ms(value) == ns // 10**6  # type: ignore[arg-type]


@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
def test_invalid_timestamp_is_rejected(value: object) -> None:
    for read in timestamp_ms, timestamp_ns:
        with pytest.raises(InvalidArgumentError):
            read(value)  # type: ignore[arg-type]


def test_lance_time_travel_parses_timestamps_as_delta() -> None:
    """Float seconds were rounded to a time before their commit; a list raised a plain ``TypeError``."""
    rows, store = pa.table({"a": [1]}), MemoryStore("timestamps-lance")
    runtime = Runtime(lambda: NS, SYSTEM_RUNTIME.new_id, SYSTEM_RUNTIME.sleep)
    write(store, rows.schema, rows.to_batches(), "create", runtime)
    assert trilake.open(store.uri, timestamp=NS / 10**9).version == 1
    with pytest.raises(VersionNotFoundError):
        trilake.open(store.uri, timestamp="2023-11-14T22:13:20.123455Z")
    for value in NO_TIMES:
        if value is not None:
            with pytest.raises(InvalidArgumentError):
                trilake.open(store.uri, timestamp=value)  # type: ignore[arg-type]
