"""OPTIMIZE: bins, order of rows, rewriting."""
