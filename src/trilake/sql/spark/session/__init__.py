"""What a statement asks of the session: Spark's parser, names, frames, results."""

from trilake.common.extras import need

need("pyspark", "statements in a session")
