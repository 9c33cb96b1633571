"""Spark jobs for Delta tables with very many files: the driver holds only counts and recent changes."""
