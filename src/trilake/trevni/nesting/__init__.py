"""Nested rows as columns and back, and their Arrow types."""
