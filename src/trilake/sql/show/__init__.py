"""DESCRIBE and SHOW."""
