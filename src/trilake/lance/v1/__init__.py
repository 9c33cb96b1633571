"""The legacy file format, versions 0.1 and 0.2: pages batch by batch, no nulls, one dictionary for all files.

In: stores, schemas, Arrow batches.  Out: readers and writers of data files.  It does not know manifests.
"""
