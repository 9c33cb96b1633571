"""Statements as text: tokens, places, cursors."""
