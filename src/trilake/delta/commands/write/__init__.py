"""Tables created and written; DELETE and UPDATE."""
