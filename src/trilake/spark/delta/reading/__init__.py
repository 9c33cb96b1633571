"""Reading Delta tables: time travel, paths, change feeds."""
