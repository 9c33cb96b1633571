"""Frames that show the newest version of their tables whenever they are used."""
