"""The session behind a statement: Spark's parser, names, DataFrames, results."""

from trilake.common.extras import need

need("pyspark", "statements in a session")
