"""A parser of Delta's extensions to Spark SQL, and SQL tokens with positions."""
