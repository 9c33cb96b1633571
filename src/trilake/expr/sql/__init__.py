"""Spark SQL, read and translated."""
