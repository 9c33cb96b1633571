"""Commits: conflicts, attempts, and what follows a commit."""
