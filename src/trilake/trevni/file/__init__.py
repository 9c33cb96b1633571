"""One file, read and written."""
