"""The grammar that Delta adds to Spark SQL, and SQL as tokens, with positions."""
