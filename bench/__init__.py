"""Benchmarks: ``python -m bench [names]``.  ``docs/internals/benchmarks.md`` describes the method."""
