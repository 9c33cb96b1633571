"""trilake on Spark: start local sessions, read and write tables.

Importing this package does not import PySpark: :mod:`trilake.spark.session.java` must run first.  Raises
``MissingDependencyError`` if PySpark is not installed.
"""

from trilake.common.extras import need

need("pyspark", "Spark sessions")
