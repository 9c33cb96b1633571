"""Store assignment, and columns that only Spark can compute."""
