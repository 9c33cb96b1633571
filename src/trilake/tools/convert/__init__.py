"""``trilake.convert``: rows of a table, dataset or folder in another format, checked by reading them back.

``columns`` maps schemas, ``sources`` cuts what is read into pieces, ``targets`` writes and reads back what no reader
sees yet, ``parquet`` does both for folders of Parquet files, and ``run`` puts them together, here or in Spark's tasks.
"""

from trilake.tools.convert.run import Conversion, convert

__all__ = ["Conversion", "convert"]
