"""Iceberg metadata of Delta tables: schema and files in, what pyiceberg's writers make of them out."""
