"""Commands on tables, one folder per kind."""
