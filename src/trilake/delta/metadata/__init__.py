"""Changes of schema and properties, as pure functions."""
