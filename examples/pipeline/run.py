"""A pipeline of Spark over tables of all formats: Delta and Trevni are read, Lance and Delta are written.

Run it with ``python examples/pipeline/run.py`` (PySpark 4.1 or newer).  It needs no network and no jar, and leaves
nothing behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from rich.console import Console

import trilake
from trilake.spark.session.java import ensure_java

ORDERS = 1_000


def write_sources(lake: Path) -> None:
    """The tables that the pipeline reads."""
    numbers = range(ORDERS)
    orders = {
        "shop": [f"shop {i % 3}" for i in numbers],
        "item": [f"item {i % 5}" for i in numbers],
        "count": [i % 10 for i in numbers],
    }
    trilake.write(orders, lake / "orders")
    prices = {"item": [f"item {i}" for i in range(5)], "price": [float(i + 1) for i in range(5)]}
    trilake.write(prices, lake / "prices", format="trevni")


def run_pipeline(lake: Path) -> None:
    """Let Spark run the definitions, in a session of its own."""
    shutil.copy(Path(__file__).with_name("definitions.py"), lake)
    specification = lake / "spark-pipeline.yml"
    specification.write_text(f"""\
name: orders
storage: {(lake / "progress").as_uri()}
libraries:
  - glob:
      include: definitions.py
""")
    ensure_java()
    spark_home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "LAKE": str(lake),
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    command = [spark_home / "bin" / "spark-pipelines", "run", "--spec", specification]
    done = subprocess.run(command, cwd=lake, env=environment, capture_output=True, text=True, check=False)
    # With sources in Python the command of PySpark 4.3.0 ends with UNKNOWN_RESPONSE behind a complete run.
    if "Run is COMPLETED" not in done.stdout + done.stderr:
        sys.exit(done.stdout + done.stderr)


def main() -> None:
    """Write the sources, run the pipeline, look at what it made."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)
        write_sources(lake)
        run_pipeline(lake)
        copy, large = trilake.open(lake / "orders.lance"), trilake.open(lake / "large")
        assert copy.count() == ORDERS
        assert large.count() == ORDERS // 5
        Console().print(f"{copy.count():,} orders are in the Lance dataset, {large.count():,} large ones in {large!r}")


if __name__ == "__main__":
    main()
