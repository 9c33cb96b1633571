"""Helpers for every layer: progress, runtime (clock, ids, waiting), optional imports, argument checks, formatting."""
