"""The session behind a statement: Spark's parser, names, frames, results."""

from trilake.common.extras import need

need("pyspark", "statements in a session")
