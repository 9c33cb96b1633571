"""Blocks and headers: codecs, layout, kernels, and row requests."""
