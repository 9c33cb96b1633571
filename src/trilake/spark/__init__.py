"""trilake on Spark: choose a Java, start local sessions, read and write tables.

Importing this package does not import PySpark, so that :mod:`trilake.spark.session.java` can run first.  It raises
``MissingDependencyError`` if PySpark is not installed.
"""

from trilake.common.extras import need

need("pyspark", "Spark sessions")
