"""Remove rows; commit commands that change rows, and return their results."""
