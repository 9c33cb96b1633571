"""Statements about tables: CREATE, ALTER, views, maintenance."""
