"""Data files of versions 2.0 to 2.2: bytes in, Arrow arrays out, and back for writers.

container (where pages are) <- pages of one column (mini-block, full-zip, constant; 2.0's arrays) <- levels (nesting) <-
file.  It does not know datasets: deleted rows and the columns of a fragment's fields are passed in.
"""
