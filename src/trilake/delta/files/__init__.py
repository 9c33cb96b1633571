"""Writing data files, with their statistics."""
