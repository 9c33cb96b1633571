"""Reads, writes and commands of Delta tables."""
