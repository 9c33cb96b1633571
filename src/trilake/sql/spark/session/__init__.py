"""The session behind a statement: Spark's parser, names, DataFrames, results."""
