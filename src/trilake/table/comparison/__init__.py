"""Compare two tables, or two versions of one: schema, properties, files and rows.

``rows`` compares rows with bounded memory; ``compare`` does the rest, and defines the result.
"""
