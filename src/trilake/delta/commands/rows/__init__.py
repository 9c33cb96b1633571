"""Removing rows, and the commit and result of commands that change rows."""
