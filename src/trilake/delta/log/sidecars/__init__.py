"""Sidecars of checkpoints of version 2: written in a row, described by tags, and named again by later checkpoints."""
