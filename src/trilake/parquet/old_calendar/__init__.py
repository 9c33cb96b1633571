"""Parquet files with dates and timestamps in the hybrid calendar of Spark before release 3: Julian up to 1582-10-04,
Gregorian from 1582-10-15.
"""
