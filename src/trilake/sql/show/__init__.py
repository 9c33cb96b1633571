"""DESCRIBE and SHOW."""

from trilake.extras import need

need("pyspark", "statements in a session")
