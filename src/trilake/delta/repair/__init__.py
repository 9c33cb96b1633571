"""Safe repairs of Delta tables: one function per step, which first reports what it would do."""
