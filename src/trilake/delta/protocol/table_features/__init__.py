"""Table features, one file each."""
