"""Folders of files as tables: reads, writes as jobs, and streams."""
