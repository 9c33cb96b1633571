"""Sidecars of v2 checkpoints: written one after another, described by tags, and reused by later checkpoints."""
