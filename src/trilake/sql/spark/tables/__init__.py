"""Statements about tables: CREATE, ALTER, views, maintenance."""

from trilake.common.extras import need

need("pyspark", "statements in a session")
