"""Differences between the calendars, compared with Spark's tables."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pyspark
import pytest

from trilake.parquet.old_calendar import DAYS, of_zone


def test_every_time_zone_matches_spark() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    with zipfile.ZipFile(jar) as archive:
        records = json.loads(archive.read("julian-gregorian-rebase-micros.json"))
    assert len(records) > 500
    for record in records:
        zone = of_zone(record["tz"])
        at, add = np.array(record["switches"]), np.array(record["diffs"])
        moments = np.concatenate([at - 1, at, at + 86_400])
        expected = moments + add[np.maximum(np.searchsorted(at, moments, side="right") - 1, 0)]
        assert zone.rebased(moments).tolist() == expected.tolist(), record["tz"]


def test_days_are_rebased_between_calendars() -> None:
    # Both calendars agree from 200-03-01 to 300-02-28; ten days are left out in 1582.
    days = np.array([-719_162, -646_419, -171_596, -141_428, -141_427, 0], np.int32)
    assert (DAYS.rebased(days) - days).tolist() == [2, 0, -9, -10, 0, 0]
    assert DAYS.rebased(days).dtype == np.int32


@pytest.mark.parametrize(
    ("name", "hours"), [("+05:30", 5.5), ("GMT-8", -8), ("UTC+01:00", 1), ("Z", 0), ("UTC", 0), ("GMT", 0)]
)
def test_fixed_offset_zones_shift_utc(name: str, hours: float) -> None:
    zone, utc = of_zone(name), of_zone("UTC")
    assert zone.at[:14].tolist() == (utc.at[:14] - round(hours * 3600)).tolist()
    assert zone.add[:14].tolist() == utc.add[:14].tolist()


def test_zone_unknown_to_spark_matches_the_system() -> None:
    zone = of_zone("America/Ciudad_Juarez")  # of 2022: standard time is seven hours behind, its mean time 7:05:56
    assert zone.add[-2:].tolist() == [356, 0]
    with pytest.raises(ValueError, match="time zone 'Mars/Olympus'"):
        of_zone("Mars/Olympus")
