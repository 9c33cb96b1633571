"""Parquet files: footers, statistics, column chunks, variants, the old calendar.  Knows nothing about tables.

``files`` opens untrusted files and checks footers before Arrow reads them.  ``footer_walk`` parses many footers at once
for ``merged_files``, which reads small files as one.  ``thrift`` parses and writes footers for ``splice``, which copies
column chunks.
"""
