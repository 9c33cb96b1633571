"""Statements that change rows: INSERT, DELETE, UPDATE, MERGE."""

from trilake.extras import need

need("pyspark", "statements in a session")
