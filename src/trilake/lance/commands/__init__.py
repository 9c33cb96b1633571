"""Commands that change a dataset: rows, columns, indices, compaction."""
