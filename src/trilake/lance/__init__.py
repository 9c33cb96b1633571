"""Lance datasets in the format's first version: files, versions and indices."""
