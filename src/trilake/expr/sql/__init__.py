"""Spark SQL text, read and translated."""
