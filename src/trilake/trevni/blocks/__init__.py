"""Blocks and headers: codecs, layout, kernels, what is read of a column."""
