"""Lance's protobuf messages: ``.proto`` files of our own, and the modules that ``scripts/protos`` makes of them."""
