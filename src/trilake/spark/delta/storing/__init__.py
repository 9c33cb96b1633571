"""How values go into columns, as a session says: casts, names, times."""
