"""Reading: data skipping, rows of data files as rows of the table, change data feed."""
