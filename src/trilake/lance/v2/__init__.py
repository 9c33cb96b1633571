"""Data files of versions 2.0 to 2.3: read bytes as Arrow arrays, and write them (up to 2.2).

::

    reading   container (positions of pages) <- miniblock, fullzip (layouts) <- column <- nesting <- file
              codecs decodes the values of a layout; decode_v20 reads the pages of 2.0, planar those of 2.3
    writing   write_levels (nesting) <- encode_values <- encode_miniblock, encode_fullzip <- encode_page <- writer
              encode_page chooses layout and encodings; encode_v20 writes the pages of 2.0

This package does not know datasets: callers pass the columns of a fragment's fields, and handle deleted rows.
"""
