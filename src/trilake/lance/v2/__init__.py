"""Data files of versions 2.0 to 2.2: bytes of a file come in, Arrow arrays go out, and the other way for writers.

container (where pages are) <- pages of one column (mini-block, full-zip, constant; 2.0's arrays) <- levels (nesting) <-
file.  Nothing here knows of datasets: which rows are deleted, or which column a field of a fragment is, comes in as
arguments.
"""
