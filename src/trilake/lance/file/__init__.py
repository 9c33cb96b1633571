"""Data files: types, schemas, pages, what is written and read of them."""
