"""Verification of Delta tables: one file per kind of promise, one row per promise in ``run.py``."""
