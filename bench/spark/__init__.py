"""Queries and statements on the way that users of Spark take."""
