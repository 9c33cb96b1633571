"""Iceberg metadata of Delta tables: convert schemas and files, and read Iceberg tables."""
