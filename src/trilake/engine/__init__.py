"""The engine that every way in uses: the room that may know all formats, and nothing of Spark.

Delta tables may have Lance and Trevni files.  Formats do not know each other, so they meet here.
"""

from __future__ import annotations

from trilake.engine.standard import standard_engine

__all__ = ["standard_engine"]
