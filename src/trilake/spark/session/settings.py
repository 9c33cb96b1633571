"""Settings of a session that hold while a job of ours runs, and are what they were before afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession


@dataclass
class _Overridden:
    """A setting that jobs hold: how many do, and what it was before the first."""

    count: int
    before: str | None


_lock = threading.Lock()
_overridden: WeakKeyDictionary[SparkSession, dict[str, _Overridden]] = WeakKeyDictionary()


@contextmanager
def overridden(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let settings have these values in a block.

    Blocks of several threads may overlap: the last one that ends puts back what was there before the first.
    """
    with _lock:
        ours = _overridden.setdefault(spark, {})
        for key, value in settings.items():
            before = spark.conf.get(key, None)
            ours.setdefault(key, _Overridden(0, before)).count += 1
            if before != value:
                spark.conf.set(key, value)
    try:
        yield
    finally:
        with _lock:
            for key, value in settings.items():
                ours[key].count -= 1
                if not ours[key].count:
                    _restore(spark, key, ours.pop(key).before, value)


def _restore(spark: SparkSession, key: str, before: str | None, value: str) -> None:
    if before is None:
        spark.conf.unset(key)
    elif before != value:
        spark.conf.set(key, before)
