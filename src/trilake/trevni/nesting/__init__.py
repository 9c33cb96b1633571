"""Convert nested rows to columns and back, with their Arrow types."""
