"""The bytes of a file: its source, header, descriptors and blocks, and their codecs, order and kernels."""
