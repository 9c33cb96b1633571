"""Ask a local Spark for the answers that tests of expressions expect.

They are the rows that each filter of ``spark_filters.txt`` keeps (``spark_answers.json``), and the values of each
expression of ``scalar_cases.py`` (``spark_values.json``).  Run by hand, with pyspark and a Java runtime, when filters
or expressions are added (it runs only those without an answer): ``python -m tests.expr.record_spark``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.expr import scalar_cases, semantics

HERE = Path(__file__).parent


def record(name: str, texts: Sequence[str], rows: pa.Table, ask: Callable[[DataFrame, str], Any]) -> None:
    """Ask for the texts that the file with this name does not have."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        # Statistics pruning ignores NaN, which is not under test here.
        .config("spark.sql.parquet.filterPushdown", "false")
        .getOrCreate()
    )
    path = HERE / name
    answers: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, f"{folder}/rows.parquet")
        frame = spark.read.parquet(f"{folder}/rows.parquet").coalesce(1)
        for text in (t for t in texts if t not in answers):
            try:
                answers[text] = ask(frame, text)
            except PySparkException as error:
                answers[text] = f"error: {error.getCondition() or type(error).__name__}"
    path.write_text("{\n" + ",\n".join(f"{json.dumps(t)}: {json.dumps(answers[t])}" for t in texts) + "\n}\n")


def kept(frame: DataFrame, text: str) -> list[int]:
    return sorted(row.id for row in frame.filter(text).select("id").collect())


def values(frame: DataFrame, text: str) -> list[Any]:
    found = frame.selectExpr(f"{text} AS v")
    return [found.schema[0].dataType.simpleString(), scalar_cases.as_strings(found.toArrow()["v"].to_pylist())]


if __name__ == "__main__":
    record("spark_answers.json", semantics.FILTERS, semantics.ROWS, kept)
    casts = [f"CAST({e} AS {t})" for e, t in scalar_cases.STORED]
    record("spark_values.json", [*scalar_cases.EXPRESSIONS, *casts], scalar_cases.ROWS, values)
