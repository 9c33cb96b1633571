"""trilake: open lakehouse tables for PySpark in pure Python."""

__version__ = "0.1.0"
