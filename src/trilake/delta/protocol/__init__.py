"""The words of the protocol: actions, schemas, properties, table features, deletion vectors, column mapping."""
