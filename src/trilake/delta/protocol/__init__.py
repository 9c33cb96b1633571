"""The protocol's data: actions, schemas, properties, table features, deletion vectors, column mapping."""
