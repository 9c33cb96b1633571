"""Store Avro, Protocol Buffers and Thrift records as columns."""
