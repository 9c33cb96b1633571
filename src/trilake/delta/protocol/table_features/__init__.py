"""Table features, a file each: a row that says all that is known of the feature."""
