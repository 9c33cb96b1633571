"""Iceberg: write Iceberg metadata of Delta tables, and read Iceberg tables to convert them."""
