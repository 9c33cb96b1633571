"""Ask a local Spark which rows each filter of ``semantics.py`` keeps, and write ``spark_answers.json``.

Run by hand, with pyspark and a Java runtime, when filters are added: ``python -m tests.expr.record_spark_answers``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.expr.semantics import FILTERS, ROWS

HERE = Path(__file__).parent


def main() -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        # Pruning by statistics forgets NaN, which is not what is asked here.
        .config("spark.sql.parquet.filterPushdown", "false")
        .getOrCreate()
    )
    answers: dict[str, list[int] | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(ROWS, f"{folder}/rows.parquet")
        frame = spark.read.parquet(f"{folder}/rows.parquet")
        for text in FILTERS:
            try:
                answers[text] = sorted(row.id for row in frame.filter(text).select("id").collect())
            except PySparkException as error:
                answers[text] = f"error: {error.getCondition() or type(error).__name__}"
    body = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answers.items())
    (HERE / "spark_answers.json").write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
