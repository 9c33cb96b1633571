"""Logs of many files and of many commits."""
