"""``delta.version``: the release of delta-spark whose names and answers are here.

It is what code asks that wants to know what a table can do; the version of trilake is ``trilake.__version__``.
"""

from __future__ import annotations

__version__ = "4.0.1"
