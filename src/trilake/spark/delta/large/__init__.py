"""VACUUM of Delta tables with very many files, as Spark jobs."""
