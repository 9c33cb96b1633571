"""Compare two tables, or two versions of one: schema, properties, files and rows.

``result`` has the result types; ``rows`` compares rows with bounded memory; ``compare`` combines them.
"""
