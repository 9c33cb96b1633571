"""Tables of all formats in Spark's catalog: their entries, and the tables that names refer to."""
