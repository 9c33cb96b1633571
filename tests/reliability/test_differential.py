"""trilake, other readers and an oracle of Spark's rules agree on random tables, operations and filters.

``TRILAKE_CASES`` sets the number of cases, ``TRILAKE_FIRST_SEED`` the first seed.  A case that differs is shrunk
and printed with its seed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SOAK
from tests.reliability.differential import Case, difference, expected, random_case, smallest
from tests.reliability.peers import PEERS, spark_answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

FIRST = int(os.environ.get("TRILAKE_FIRST_SEED", "0"))
CASES = int(os.environ.get("TRILAKE_CASES", "5000" if SOAK else "14"))


def check(seeds: range, peers: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        case = random_case(seed)
        problem = difference(case, PEERS if peers else None, counts)
        if problem is not None:

            def wrong(less: Case) -> str | None:
                return difference(less, PEERS if peers else None)

            least = smallest(case, wrong)
            raise AssertionError(f"{problem}\n{wrong(least) or 'once only'}\n{least}")
    return counts


def test_answers_match_the_oracle() -> None:
    counts = check(range(FIRST, FIRST + CASES), peers=False)
    assert counts["filters"] > CASES
    assert counts.get("rejected", 0) * 4 < counts["filters"]


def test_answers_match_other_readers() -> None:
    few = CASES if SOAK else min(CASES, 12)
    counts = check(range(FIRST + 1_000_000, FIRST + 1_000_000 + few), peers=True)
    for name in PEERS:
        assert counts[name] > 0, counts
        assert counts[f"{name} filters"] > 0, counts


@pytest.mark.soak
def test_oracle_matches_spark(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for seed in range(FIRST, FIRST + CASES // 10):
        case = random_case(seed)
        for condition, ids in zip(case.filters, spark_answers(spark, case, tmp_path), strict=True):
            assert ids == {r["id"] for r in expected(case) if condition.of(r) is True}, f"{seed}: {condition.sql()}"
