"""Statements that change rows: INSERT, DELETE, UPDATE, MERGE."""
