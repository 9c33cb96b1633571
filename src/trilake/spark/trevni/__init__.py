"""Trevni files in Spark."""
