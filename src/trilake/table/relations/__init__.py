"""Tables as relations of other engines, which read only what a query needs."""
