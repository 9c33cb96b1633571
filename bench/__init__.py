"""Benchmarks: ``python -m bench [names]``.  ``docs/internals/benchmarks.md`` says how the numbers are made."""
