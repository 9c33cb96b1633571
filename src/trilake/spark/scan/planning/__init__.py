"""Choose files by a query's conditions while Spark plans it."""
