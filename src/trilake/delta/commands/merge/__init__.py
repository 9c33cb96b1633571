"""MERGE: clauses, scope, match, rows, commit."""
