"""Commands on tables, a folder a kind."""
