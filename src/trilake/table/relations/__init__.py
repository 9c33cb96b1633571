"""Tables as relations of other engines, which read of them what a query needs."""
