"""Benchmarks: ``python -m bench [names]``.  ``docs/benchmarks.md`` says how the numbers are made."""
