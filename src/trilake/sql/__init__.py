"""SQL over trilake tables: ``spark.sql`` after ``install``, and ``trilake.sql`` without Spark.

Spark's parser checks what it supports; Delta's own statements have a small parser here.  Names of trilake tables are
replaced by DataFrames, commands call the Python API, and all other statements stay unchanged.
"""
