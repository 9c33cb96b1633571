"""Everything about Parquet files: footers, statistics, column chunks, the old calendar."""
