"""What differs between two tables, or two versions of one: schema, properties, files and rows.

``result`` has the values that come out; ``rows`` compares rows with bounded memory; ``compare`` puts it together.  It
stands left of every format and knows them by what :class:`~trilake.table.comparison.compare.Comparable` says.
"""
