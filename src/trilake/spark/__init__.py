"""trilake on Spark: the choice of Java, local sessions, and what reads and writes tables through Spark.

Importing this package imports no PySpark, so that :mod:`trilake.spark.session.java` can prepare the way for it, but it
raises ``MissingDependencyError`` where PySpark is not installed.
"""

from trilake.common.extras import need

need("pyspark", "Spark sessions")
