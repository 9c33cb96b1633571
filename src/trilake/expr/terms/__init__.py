"""What expressions are made of: types, literals, predicates, columns bound to a schema, DuckDB's SQL, evaluation."""
