"""Ask a local Spark which rows each filter of ``spark_filters.txt`` keeps, and write ``spark_answers.json``.

Run by hand, with pyspark and a Java runtime, when filters are added (it runs only those
without an answer): ``python -m tests.expr.record_spark_answers``.
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
        # Statistics pruning ignores NaN, which is not under test here.
        .config("spark.sql.parquet.filterPushdown", "false")
        .getOrCreate()
    )
    path = HERE / "spark_answers.json"
    known: dict[str, list[int] | str] = json.loads(path.read_text()) if path.exists() else {}
    answers = {text: known[text] for text in FILTERS if text in known}
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(ROWS, f"{folder}/rows.parquet")
        frame = spark.read.parquet(f"{folder}/rows.parquet")
        for text in (t for t in FILTERS if t not in known):
            try:
                answers[text] = sorted(row.id for row in frame.filter(text).select("id").collect())
            except PySparkException as error:
                answers[text] = f"error: {error.getCondition() or type(error).__name__}"
    body = ",\n".join(f"{json.dumps(k)}: {json.dumps(answers[k])}" for k in FILTERS)
    path.write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
