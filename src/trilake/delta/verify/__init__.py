"""Verification of Delta tables: one file per subject, and one row per check in ``run.py``."""
