"""VACUUM, RESTORE, clones, and Parquet folders made tables."""
