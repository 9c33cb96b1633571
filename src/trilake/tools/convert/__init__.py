"""``trilake.convert``: copy rows to another format, verified by reading them back.

Each format's adapter provides a source and a target, and ``parquet`` those of folders of Parquet files; ``run``
copies, in this process or in Spark tasks.
"""

from trilake.tools.convert.run import Conversion, convert

__all__ = ["Conversion", "convert"]
