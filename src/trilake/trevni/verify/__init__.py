"""Verify Trevni files: headers, descriptors, parents, blocks and their checksums."""
