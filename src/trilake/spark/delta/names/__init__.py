"""Names of tables in the catalogue."""
