"""``trilake.convert``: rows of a table, dataset or folder in another format, checked by reading them back.

A format is source and target by its adapter; ``parquet`` is both for folders of Parquet files, ``sources`` and
``targets`` choose, and ``run`` puts them together, here or in Spark's tasks.
"""

from trilake.tools.convert.run import Conversion, convert

__all__ = ["Conversion", "convert"]
