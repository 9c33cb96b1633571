"""Versions: manifests, deletion files, transactions."""
