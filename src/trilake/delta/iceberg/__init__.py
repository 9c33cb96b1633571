"""Iceberg metadata of Delta tables: convert schemas and files; read Iceberg tables."""
