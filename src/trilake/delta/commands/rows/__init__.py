"""Removing rows; the commit and the result of commands that change rows."""
