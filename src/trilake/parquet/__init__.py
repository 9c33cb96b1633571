"""Parquet files: footers, statistics, column chunks, the old calendar.  Knows nothing about tables.

``files`` opens untrusted files and checks footers before Arrow reads them; ``footer_walk`` parses many footers at once,
and ``merged_files`` merges small files into one; ``thrift`` parses and writes footers for ``splice``, which copies
column chunks whose pages ``pages`` has checked.
"""
