"""What changes a dataset: rows, columns, indices, compaction."""
