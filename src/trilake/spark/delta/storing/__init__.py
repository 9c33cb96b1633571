"""Store assignment: how a session casts values to columns."""
