"""Reading a version: fragments, filters, indices, search."""
