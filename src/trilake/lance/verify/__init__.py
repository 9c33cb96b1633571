"""Verify Lance datasets: manifests, fragments, pages, statistics, deletions, indices."""
