"""Folders of files as tables; jobs that write them; streams."""
