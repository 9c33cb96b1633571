"""Indices of Lance datasets: scalar indices, vector indices, and their files."""
