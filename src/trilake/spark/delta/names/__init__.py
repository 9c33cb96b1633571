"""Names of tables in the catalog."""
