"""DESCRIBE and SHOW."""

from trilake.common.extras import need

need("pyspark", "statements in a session")
