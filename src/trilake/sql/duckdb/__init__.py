"""``trilake.sql``: statements over tables named by path, without Spark."""
