"""Statements that change rows: INSERT, DELETE, UPDATE, MERGE; and scripts of statements."""
