"""Statements that change rows: INSERT, DELETE, UPDATE, MERGE; and scripts of statements."""

from trilake.common.extras import need

need("pyspark", "statements in a session")
