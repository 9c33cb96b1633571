"""OPTIMIZE: bins, row order, rewriting."""
