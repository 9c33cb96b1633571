"""``trilake.sql``: statements over tables that are named by their path, without Spark."""
