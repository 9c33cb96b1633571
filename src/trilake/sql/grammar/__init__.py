"""Statements that Delta's grammar adds to Spark's."""
