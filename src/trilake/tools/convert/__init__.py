"""``trilake.convert``: copy rows to another format, verified by reading them back.

Each format's adapter is source and target; ``parquet`` is both for folders of Parquet files, ``sources`` and
``targets`` choose, and ``run`` combines them, here or in Spark tasks.
"""

from trilake.tools.convert.run import Conversion, convert

__all__ = ["Conversion", "convert"]
