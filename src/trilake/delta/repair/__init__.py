"""Safe repairs of Delta tables: one function per step, which first says what it would do."""
