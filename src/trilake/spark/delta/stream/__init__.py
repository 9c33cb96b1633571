"""Streams from and to Delta tables in Spark."""
