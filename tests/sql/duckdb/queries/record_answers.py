"""Record what Spark answers: ``python -m tests.sql.duckdb.queries.record_answers``.

Queries that have an answer already are not asked again: delete ``answers.json`` to ask all.
"""

from __future__ import annotations

import json
import tempfile

import trilake
from tests.sql.duckdb.queries.cases import ANSWERS, T, U, queries, shown


def main() -> None:
    """Ask Spark, and write ``answers.json``; for a query that Spark refuses, the first words of its error."""
    spark = trilake.session("answers")
    trilake.install(spark)
    known = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        names = {name: f"delta.`{folder}/{name}`" for name in ("t", "u")}
        for name, rows in (("t", T), ("u", U)):
            trilake.write(rows, f"{folder}/{name}")
        answers = {query: known[query] for query in queries() if query in known}
        for query in (q for q in queries() if q not in known):
            try:
                rows = spark.sql(query.replace("{t}", names["t"]).replace("{u}", names["u"])).toArrow()
                answers[query] = shown(rows, query)
            except Exception as e:  # noqa: BLE001 - whatever Spark says is its answer
                answers[query] = {"error": str(e).strip().split("]")[0].lstrip("[").splitlines()[0][:60]}
    lines = (f"{json.dumps(q)}: {json.dumps(a, ensure_ascii=False)}" for q, a in ((q, answers[q]) for q in queries()))
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
