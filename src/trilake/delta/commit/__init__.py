"""Commits: conflict checks, attempts, and post-commit maintenance."""
