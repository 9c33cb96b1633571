"""ALTER TABLE: columns, properties, constraints, features."""
