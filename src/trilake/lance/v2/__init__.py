"""Data files of versions 2.0 to 2.3: read bytes as Arrow arrays, and write them (up to 2.2).

container (positions of pages) <- pages of one column (mini-block, full-zip, constant; 2.0's arrays) <- levels (nesting)
<- file.  This package does not know datasets: callers pass the columns of a fragment's fields, and handle deleted rows.
"""
