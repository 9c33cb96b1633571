"""Python data sources: what Spark asks of them, rows on their way to it."""
