"""Options of the JVMs that tests start.

Spark's processes are short-lived in tests.  Java's C2 compiler would take two fifths of their processor time, and its
concurrent garbage collector a seventh of the rest.  Of what is left, almost half loads and checks classes:
``python -m tests.jvm FILE``, which ``make`` runs, writes these to an archive, which later JVMs map into memory.  A JVM
ignores the archive of another Java or another Spark.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The archive, of the environment that runs this.
ARCHIVE = Path(sys.prefix) / "spark.jsa"


def options() -> str:
    """Java's options for a short-lived Spark."""
    # Java would print a line to standard output if it ignores the archive.
    return f"{_SHORT} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=error" if ARCHIVE.exists() else _SHORT


def write_archive(path: Path) -> None:
    """Run the kinds of statements that tests run, and write the classes that Spark loaded for them."""
    from pyspark import SparkContext

    import trilake
    from trilake.spark.session.local import local_session

    unfinished = path.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT} -XX:ArchiveClassesAtExit={unfinished} -Xlog:cds*=error"
    with tempfile.TemporaryDirectory() as folder:
        conf: dict[str, Any] = {"spark.sql.warehouse.dir": Path(folder, "names").as_uri()}
        session = local_session("archive", **conf)
        trilake.install(session)
        table, copy = f"{folder}/table", f"{folder}/copy"
        rows = session.range(100).selectExpr("id", "id % 3 AS part", "struct(id AS a, array(id) AS b) AS nested")
        rows.write.format("delta").partitionBy("part").save(table)
        session.sql(f"UPDATE delta.`{table}` SET id = id + 1 WHERE id < 10")
        session.sql(
            f"MERGE INTO delta.`{table}` t USING (SELECT id FROM range(90, 110)) s ON t.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
        session.sql("CREATE TABLE named (id LONG, day DATE) USING delta")
        session.sql("INSERT INTO named VALUES (1, DATE '2024-01-01')")
        session.sql("SELECT day, count(*) FROM named JOIN range(3) USING (id) GROUP BY day ORDER BY day").collect()
        stream = session.readStream.format("delta").load(table).writeStream.format("delta")
        stream.option("checkpointLocation", f"{folder}/state").trigger(availableNow=True).start(copy).awaitTermination()
        session.read.format("delta").load(copy).toPandas()
        gateway = SparkContext._gateway
        assert gateway is not None
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which the JVM ends, and writes the archive
        gateway.proc.wait()
    unfinished.replace(path)


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
