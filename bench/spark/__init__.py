"""Queries and statements through Spark's API."""
