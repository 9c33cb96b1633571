"""Ask a local Spark for the values of each expression of ``scalar_cases.py``, and write ``spark_values.json``.

Run by hand, with pyspark and a Java runtime, when expressions are added (it runs only those
without a value): ``python -m tests.expr.record_spark_values``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.expr.scalar_cases import EXPRESSIONS, ROWS, STORED, as_strings

HERE = Path(__file__).parent


def main() -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .getOrCreate()
    )
    texts = [*EXPRESSIONS, *(f"CAST({e} AS {t})" for e, t in STORED)]
    path = HERE / "spark_values.json"
    known: dict[str, list[object] | str] = json.loads(path.read_text()) if path.exists() else {}
    answers = {text: known[text] for text in texts if text in known}
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(ROWS, f"{folder}/rows.parquet")
        frame = spark.read.parquet(f"{folder}/rows.parquet").coalesce(1)
        for text in (t for t in texts if t not in known):
            try:
                found = frame.selectExpr(f"{text} AS v")
                answers[text] = [found.schema[0].dataType.simpleString(), as_strings(found.toArrow()["v"].to_pylist())]
            except PySparkException as error:
                answers[text] = f"error: {error.getCondition() or type(error).__name__}"
    body = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in ((t, answers[t]) for t in texts))
    path.write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
