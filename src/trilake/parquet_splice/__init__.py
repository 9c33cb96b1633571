"""Parquet files made of column chunks of older ones, which nobody decodes, and of new ones.

``compact`` takes Thrift apart and puts it together, ``pages`` looks at what is copied, ``splice`` makes the file.
"""
