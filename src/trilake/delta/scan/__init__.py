"""Reading: which files a filter needs, their rows as columns of the table, the change feed."""
