"""Data files of versions 2.0 to 2.2: read bytes as Arrow arrays, and write them.

container (positions of pages) <- pages of one column (mini-block, full-zip, constant; 2.0's arrays) <- levels (nesting)
<- file.  Datasets are unknown here: callers pass the columns of a fragment's fields, and handle deleted rows.
"""
