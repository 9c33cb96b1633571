"""What commands make of a schema and of properties, as pure functions."""
