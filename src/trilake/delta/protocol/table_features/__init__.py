"""Table features: one file each, except those that share a shape."""
