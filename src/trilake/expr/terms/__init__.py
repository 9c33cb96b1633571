"""The parts of expressions: types, literals, predicates, bound columns, DuckDB's SQL, evaluation."""
