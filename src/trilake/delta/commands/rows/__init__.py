"""Rows taken away, and the commit and result of a command that changes rows."""
