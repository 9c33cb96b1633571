"""Verification of Delta tables: one file per kind of check, and one row per check in ``run.py``."""
