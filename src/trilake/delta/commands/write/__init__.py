"""CREATE TABLE, writes, DELETE and UPDATE."""
