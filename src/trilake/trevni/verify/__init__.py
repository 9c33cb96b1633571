"""Whether Trevni files keep the format's promises: headers, descriptors, parents, blocks and their checksums."""
