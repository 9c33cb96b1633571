"""Records of Avro, Protocol Buffers and Thrift as columns."""
