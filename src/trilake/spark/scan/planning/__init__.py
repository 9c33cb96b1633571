"""What a query is planned with: its files, and which conditions go into them."""
