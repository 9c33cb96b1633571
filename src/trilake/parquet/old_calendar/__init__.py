"""Parquet files whose days and instants are counted by the calendar that Spark had before release 3: Julian up to
1582-10-04, Gregorian from 1582-10-15."""
