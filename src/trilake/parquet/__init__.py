"""Everything about Parquet files: footers, statistics, column chunks, the old calendar.  No table is known here.

``files`` opens what comes from outside, and walks a footer before Arrow's accessors see it; ``footer_walk`` walks many
at once, and ``merged_files`` makes one file of many small ones; ``thrift`` takes footers apart and puts them together
for ``splice``, which copies column chunks whose pages ``pages`` has looked at.
"""
